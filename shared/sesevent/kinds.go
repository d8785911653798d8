package sesevent

import (
	"net/mail"
	"net/url"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"email-gateway/shared/email"
	"email-gateway/shared/store/suppression"
	"email-gateway/shared/unsubscribe"
)

// maxText limits each text of an event (bytes).
const maxText = 1000

// recipient is a recipient in an event.
type recipient struct {
	Address   string `json:"emailAddress"`
	Action    string `json:"action"`
	Status    string `json:"status"`
	Diagnosis string `json:"diagnosticCode"`
}

// bare removes display names from the recipients, and limits them to 50, SES's maximum per email.
func bare(list []recipient) []recipient {
	list = list[:min(len(list), 50)]
	for i, r := range list {
		if parsed, err := mail.ParseAddress(r.Address); err == nil {
			list[i].Address = parsed.Address
		}
	}
	return list
}

type delivery struct {
	Timestamp    string   `json:"timestamp"`
	Recipients   []string `json:"recipients"`
	SMTPResponse string   `json:"smtpResponse"`
	ReportingMTA string   `json:"reportingMTA"`
	Milliseconds int64    `json:"processingTimeMillis"`
}

func (d *delivery) content() content {
	list := make([]recipient, len(d.Recipients))
	for i, address := range d.Recipients {
		list[i].Address = address
	}
	details := map[string]any{"smtpResponse": d.SMTPResponse, "reportingMta": d.ReportingMTA}
	if d.Milliseconds > 0 {
		details["processingTimeMs"] = d.Milliseconds
	}
	return content{event: email.EventDelivered, at: d.Timestamp, recipients: bare(list), details: details}
}

type delay struct {
	Timestamp  string      `json:"timestamp"`
	Type       string      `json:"delayType"`
	Expiration string      `json:"expirationTime"`
	Recipients []recipient `json:"delayedRecipients"`
}

func (d *delay) content() content {
	return content{
		event: email.EventDeliveryDelayed, at: d.Timestamp, recipients: bare(d.Recipients),
		details: map[string]any{"delayType": d.Type, "expirationTime": d.Expiration},
	}
}

type bounce struct {
	Timestamp  string      `json:"timestamp"`
	Type       string      `json:"bounceType"`
	SubType    string      `json:"bounceSubType"`
	Recipients []recipient `json:"bouncedRecipients"`
	FeedbackID string      `json:"feedbackId"`
}

// onAccountList is the subtype of a bounce or complaint about an email to an address on the suppression list of the SES account.
const onAccountList = "OnAccountSuppressionList"

// unattempted reports whether a subtype means that SES tried no delivery: the address is on a suppression list of SES, on which
// an email of another company may have put it, or SES predicts a bounce. The trigger of the reputation guard lists the same
// ones.
func unattempted(subType string) bool {
	return slices.Contains([]string{onAccountList, "OnTenantSuppressionList", "EmailValidationSuppressed"}, subType)
}

// content suppresses addresses that bounce permanently. A Transient bounce concerns only this email, not the mailbox.
func (b *bounce) content() content {
	n := content{
		event: email.EventBounced, at: b.Timestamp, recipients: bare(b.Recipients), note: "SES: " + b.Type + "/" + b.SubType,
		details:   map[string]any{"bounceType": b.Type, "bounceSubType": b.SubType, "feedbackId": b.FeedbackID},
		onAccount: b.SubType == onAccountList,
	}
	if b.Type == "Permanent" && !unattempted(b.SubType) {
		n.suppress = suppression.Bounced
	}
	return n
}

type complaint struct {
	Timestamp  string      `json:"timestamp"`
	Type       string      `json:"complaintFeedbackType"`
	SubType    string      `json:"complaintSubType"` // null is ""
	Recipients []recipient `json:"complainedRecipients"`
	FeedbackID string      `json:"feedbackId"`
}

// content suppresses the addresses of a complaint, except not-spam, which means that a reader moved the
// email out of the junk folder. If SES does not know which of several recipients at a provider
// complained, it lists all; all are suppressed.
func (c *complaint) content() content {
	n := content{
		event: email.EventComplained, at: c.Timestamp, recipients: bare(c.Recipients), note: "SES: complaint",
		details:   map[string]any{"complaintFeedbackType": c.Type, "complaintSubType": c.SubType, "feedbackId": c.FeedbackID},
		onAccount: c.SubType == onAccountList,
	}
	if c.Type != "" {
		n.note += ", " + c.Type
	}
	if c.Type != "not-spam" && !unattempted(c.SubType) {
		n.suppress = suppression.Complained
	}
	return n
}

type reject struct {
	Reason string `json:"reason"`
}

type failure struct {
	Message  string `json:"errorMessage"`
	Template string `json:"templateName"`
}

func (f *failure) content() content {
	return content{event: email.EventRenderingFailed, details: map[string]any{"errorMessage": f.Message, "templateName": f.Template}}
}

type open struct {
	Timestamp string `json:"timestamp"`
}

type click struct {
	Timestamp string `json:"timestamp"`
	Link      string `json:"link"`
}

// content removes from the link its query and fragment, which often contain a secret, and unsubscribe tokens. The rest of the
// path is kept, because reports by page need it.
func (c *click) content() content {
	n := content{event: email.EventClicked, at: c.Timestamp}
	if u, err := url.Parse(c.Link); err == nil && u.Opaque == "" {
		u.User, u.RawQuery, u.ForceQuery, u.Fragment, u.RawFragment = nil, "", false, "", ""
		if path := unsubscribe.WithoutTokens(u.Path); path != u.Path {
			u.Path, u.RawPath = path, ""
		}
		n.details = map[string]any{"link": u.String()}
	}
	return n
}

type subscription struct {
	Timestamp   string `json:"timestamp"`
	ContactList string `json:"contactList"`
	Source      string `json:"source"`
	New         struct {
		UnsubscribeAll bool `json:"unsubscribeAll"`
	} `json:"newTopicPreferences"`
}

func (s *subscription) content() content {
	return content{event: email.EventSubscriptionChanged, at: s.Timestamp, details: map[string]any{
		"contactList": s.ContactList, "source": s.Source, "unsubscribeAll": s.New.UnsubscribeAll,
	}}
}

// cut truncates text to at most n bytes, at a character boundary, and replaces control characters: some texts come from
// mail servers of recipients, and are printed on terminals.
func cut(text string, n int) string {
	text = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, text)
	if len(text) <= n {
		return text
	}
	for n > 0 && !utf8.RuneStart(text[n]) {
		n--
	}
	return strings.TrimSpace(text[:n])
}
