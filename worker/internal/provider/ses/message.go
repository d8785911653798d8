package ses

import (
	"errors"
	"fmt"
	"maps"
	"net/mail"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sesv2"
	"github.com/aws/aws-sdk-go-v2/service/sesv2/types"

	"email-gateway/shared/mailbox"
	"email-gateway/worker/internal/provider"
)

// input converts the message to an SES request.
func (s *Sender) input(m provider.Message) (*sesv2.SendEmailInput, error) {
	from, err := sender(m.From)
	if err != nil {
		return nil, fmt.Errorf("from: %w", err)
	}
	to, err := addresses(m.To)
	if err != nil {
		return nil, fmt.Errorf("to: %w", err)
	}
	cc, err := addresses(m.CC...)
	if err != nil {
		return nil, fmt.Errorf("cc: %w", err)
	}
	bcc, err := addresses(m.BCC...)
	if err != nil {
		return nil, fmt.Errorf("bcc: %w", err)
	}
	var replyTo []string
	if m.ReplyTo != "" {
		if replyTo, err = addresses(m.ReplyTo); err != nil {
			return nil, fmt.Errorf("reply-to: %w", err)
		}
	}

	input := &sesv2.SendEmailInput{
		FromEmailAddress: aws.String(from),
		Destination:      &types.Destination{ToAddresses: to, CcAddresses: cc, BccAddresses: bcc},
		ReplyToAddresses: replyTo,
		Content: &types.EmailContent{Simple: &types.Message{
			Subject: text(m.Subject),
			Body:    &types.Body{},
			Headers: headers(m.Headers),

			Attachments: attachments(m.Attachments),
		}},
		EmailTags: tags(m),
	}
	if m.HTML != "" {
		input.Content.Simple.Body.Html = text(m.HTML)
	}
	if m.Text != "" {
		input.Content.Simple.Body.Text = text(m.Text)
	}
	if s.configurationSet != "" {
		input.ConfigurationSetName = aws.String(s.configurationSet)
	}
	return input, nil
}

// text sets the charset, because SES reads text without one as 7-bit ASCII.
func text(s string) *types.Content {
	return &types.Content{Data: aws.String(s), Charset: aws.String("UTF-8")}
}

// headers are sorted, so that equal messages are equal requests.
func headers(h map[string]string) []types.MessageHeader {
	var list []types.MessageHeader
	for _, name := range slices.Sorted(maps.Keys(h)) {
		list = append(list, types.MessageHeader{Name: aws.String(name), Value: aws.String(h[name])})
	}
	return list
}

// attachments sets the transfer encoding: without it, SES guesses, and damages PDFs.
func attachments(all []provider.Attachment) []types.Attachment {
	var list []types.Attachment
	for _, a := range all {
		one := types.Attachment{
			FileName: aws.String(a.Filename), ContentType: aws.String(a.ContentType), RawContent: a.Content,
			ContentDisposition: types.AttachmentContentDispositionAttachment, ContentTransferEncoding: types.AttachmentContentTransferEncodingBase64,
		}
		if a.Inline {
			one.ContentDisposition = types.AttachmentContentDispositionInline
		}
		if a.ContentID != "" {
			one.ContentId = aws.String(a.ContentID)
		}
		list = append(list, one)
	}
	return list
}

// tags returns the tags that SES includes in every event about the email. Empty ids are omitted,
// because SES rejects an email with an empty tag.
func tags(m provider.Message) []types.MessageTag {
	var list []types.MessageTag
	for _, tag := range [...]struct{ name, value string }{
		{"outbox_id", m.OutboxID},
		{"attempt_id", m.AttemptID},
		{"company_id", m.CompanyID},
		{"installation_id", m.InstallationID},
	} {
		if tag.value != "" {
			list = append(list, types.MessageTag{Name: aws.String(tag.name), Value: aws.String(tag.value)})
		}
	}
	return list
}

// sender encodes a display name as in RFC 2047; SES sends an unencoded one unchanged.
func sender(s string) (string, error) {
	parsed, err := mail.ParseAddress(s)
	if err != nil {
		return "", err
	}
	if parsed.Address, err = address(parsed.Address); err != nil {
		return "", err
	}
	return mailbox.Header(*parsed)
}

func addresses(list ...string) ([]string, error) {
	var out []string
	for _, s := range list {
		a, err := address(s)
		if err != nil {
			return nil, err
		}
		out = append(out, a)
	}
	return out, nil
}

// address converts an international domain to punycode, the only form SES accepts. An ASCII domain
// is unchanged: IDNA's stricter rules would reject domains that receive mail, such as one with an
// underscore.
func address(s string) (string, error) {
	at := strings.LastIndexByte(s, '@')
	if at <= 0 || at == len(s)-1 {
		return "", errors.New("not an email address")
	}
	domain := s[at+1:]
	if isASCII(domain) {
		return s, nil
	}
	domain, err := mailbox.Domain(domain)
	if err != nil {
		return "", fmt.Errorf("domain: %w", err)
	}
	return s[:at+1] + domain, nil
}

func isASCII(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r > 0x7f })
}
