package sesmail

import (
	"fmt"
	"strings"
)

// The limits that SES documents for SendEmail.
const (
	maxRecipients  = 50
	maxHeaders     = 15
	maxHeaderName  = 126
	maxHeaderValue = 995
	maxHeaderLine  = 996 // name and value together
	maxTagText     = 256
	maxSetName     = 64
)

// Problem returns the message of SES's BadRequestException, or "" for a valid mail.
func (in *Input) Problem() string {
	for _, check := range [...]func(*Input) string{
		(*Input).addressProblem,
		(*Input).contentProblem,
		(*Input).attachmentProblem,
		(*Input).headerProblem,
		(*Input).tagProblem,
	} {
		if p := check(in); p != "" {
			return p
		}
	}
	return ""
}

func (in *Input) addressProblem() string {
	if in.FromEmailAddress == "" {
		return "Missing required header 'From'."
	}
	d := &in.Destination
	switch n := len(d.ToAddresses) + len(d.CcAddresses) + len(d.BccAddresses); {
	case n == 0:
		return "There are no recipients specified."
	case n > maxRecipients:
		return fmt.Sprintf("Recipient count exceeds %d.", maxRecipients)
	}
	if p := invalidAddress(in.FromEmailAddress); p != "" {
		return "From: " + p
	}
	for _, list := range [...][]string{d.ToAddresses, d.CcAddresses, d.BccAddresses, in.ReplyToAddresses} {
		for _, address := range list {
			if p := invalidAddress(address); p != "" {
				return p
			}
		}
	}
	return ""
}

func (in *Input) contentProblem() string {
	c := in.Content.Simple
	switch {
	case in.Content.Raw != nil, in.Content.Template != nil:
		return "The simulator takes Content.Simple only."
	case c == nil:
		return "Content.Simple is required."
	case c.Subject == nil || c.Subject.Data == nil:
		return "Subject is required."
	case strings.ContainsFunc(*c.Subject.Data, isControl):
		return "Subject contains control characters."
	case c.Body.Text == nil && c.Body.Html == nil:
		return "Body requires Text or Html."
	}
	for _, text := range [...]*content{c.Subject, c.Body.Text, c.Body.Html} {
		if text == nil {
			continue
		}
		if text.Data == nil {
			return "Data is required in Text and Html."
		}
		if _, known := lastRune(text.Charset); !known {
			return fmt.Sprintf("Invalid charset: '%s'.", text.Charset)
		}
	}
	return ""
}

func (in *Input) headerProblem() string {
	headers := in.Content.Simple.Headers
	if len(headers) > maxHeaders {
		return fmt.Sprintf("Header count exceeds %d.", maxHeaders)
	}
	for i, h := range headers {
		switch {
		case h.Name == "" || len(h.Name) > maxHeaderName || strings.ContainsFunc(h.Name, notHeaderName):
			return fmt.Sprintf("Invalid header name: '%s'.", h.Name)
		case h.Value == "" || len(h.Value) > maxHeaderValue || strings.ContainsFunc(h.Value, notPrintableASCII):
			return fmt.Sprintf("Invalid value of header '%s'.", h.Name)
		case len(h.Name)+len(h.Value) > maxHeaderLine:
			return fmt.Sprintf("Header '%s' is longer than %d characters.", h.Name, maxHeaderLine)
		case setElsewhere(h.Name), allowedOnce(h.Name) && hasHeader(headers[:i], h.Name):
			return fmt.Sprintf("Duplicate header '%s'.", h.Name)
		}
	}
	return ""
}

func notHeaderName(r rune) bool { return r <= ' ' || r > '~' || r == ':' }

func notPrintableASCII(r rune) bool { return r < ' ' || r > '~' }

func hasHeader(headers []Pair, name string) bool {
	for _, h := range headers {
		if strings.EqualFold(h.Name, name) {
			return true
		}
	}
	return false
}

// setElsewhere reports whether SES writes the header from another part of the request.
func setElsewhere(name string) bool {
	switch strings.ToLower(name) {
	case "from", "to", "cc", "bcc", "subject", "reply-to", "mime-version", "content-type",
		"content-transfer-encoding", "return-path", "dkim-signature":
		return true
	}
	return false
}

// allowedOnce reports whether SES refuses a second header of that name.
func allowedOnce(name string) bool {
	switch strings.ToLower(name) {
	case "accept-language", "auto-submitted", "date", "errors-to", "importance", "in-reply-to",
		"keywords", "list-archive", "list-help", "list-id", "list-owner", "list-post", "list-subscribe",
		"list-unsubscribe", "list-unsubscribe-post", "message-id", "organization", "precedence",
		"priority", "references", "sender", "thread-index", "thread-topic", "user-agent":
		return true
	}
	return false
}

func (in *Input) tagProblem() string {
	if name := in.ConfigurationSetName; len(name) > maxSetName || strings.ContainsFunc(name, notTagText) {
		return "Invalid configuration set name: '" + name + "'."
	}
	for _, tag := range in.EmailTags {
		// SES accepts two tags whose names its own rule forbids.
		name := strings.TrimPrefix(tag.Name, "ses:feedback-id-")
		if !isTagText(name) || !isTagText(tag.Value) {
			return fmt.Sprintf("Invalid tag '%s': name and value take 1 to %d characters of A-Z, a-z, 0-9, '_' and '-'.", tag.Name, maxTagText)
		}
	}
	return ""
}

func isTagText(s string) bool {
	return s != "" && len(s) <= maxTagText && !strings.ContainsFunc(s, notTagText)
}

func notTagText(r rune) bool { return !isAlphanumeric(r) && r != '-' && r != '_' }
