package sesevent

import (
	"net/mail"
	"net/url"
	"strings"
	"unicode/utf8"

	"email-gateway/shared/email"
	"email-gateway/shared/store"
)

// maxText bounds each text of an event, in bytes. Servers are talkative.
const maxText = 1000

// recipient is one of those whom the event is about.
type recipient struct {
	Address   string `json:"emailAddress"`
	Action    string `json:"action"`
	Status    string `json:"status"`
	Diagnosis string `json:"diagnosticCode"`
}

// bare are the recipients without the names that may stand before their addresses, 50
// at most, which is what SES sends one email to.
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

func (d *delivery) news() news {
	list := make([]recipient, len(d.Recipients))
	for i, address := range d.Recipients {
		list[i].Address = address
	}
	details := map[string]any{"smtpResponse": d.SMTPResponse, "reportingMta": d.ReportingMTA}
	if d.Milliseconds > 0 {
		details["processingTimeMs"] = d.Milliseconds
	}
	return news{event: email.EventDelivered, at: d.Timestamp, recipients: bare(list), details: details}
}

type delay struct {
	Timestamp  string      `json:"timestamp"`
	Type       string      `json:"delayType"`
	Expiration string      `json:"expirationTime"`
	Recipients []recipient `json:"delayedRecipients"`
}

func (d *delay) news() news {
	return news{
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

// news: a mailbox that will never take mail is not written to again. With Transient
// SES has given up on this email, not on the mailbox.
func (b *bounce) news() news {
	n := news{
		event: email.EventBounced, at: b.Timestamp, recipients: bare(b.Recipients), note: "SES: " + b.Type + "/" + b.SubType,
		details: map[string]any{"bounceType": b.Type, "bounceSubType": b.SubType, "feedbackId": b.FeedbackID},
	}
	if b.Type == "Permanent" {
		n.suppress = store.Bounced
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

// news: with not-spam somebody took the email out of the junk folder. Of several
// recipients at one provider SES names all, since it does not know who complained;
// none of them is written to again.
func (c *complaint) news() news {
	n := news{
		event: email.EventComplained, at: c.Timestamp, recipients: bare(c.Recipients), note: "SES: complaint",
		details: map[string]any{"complaintFeedbackType": c.Type, "complaintSubType": c.SubType, "feedbackId": c.FeedbackID},
	}
	if c.Type != "" {
		n.note += ", " + c.Type
	}
	if c.Type != "not-spam" {
		n.suppress = store.Complained
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

func (f *failure) news() news {
	return news{event: email.EventRenderingFailed, details: map[string]any{"errorMessage": f.Message, "templateName": f.Template}}
}

type open struct {
	Timestamp string `json:"timestamp"`
}

type click struct {
	Timestamp string `json:"timestamp"`
	Link      string `json:"link"`
}

// news: what follows the ? of a link is often a secret of the reader's.
func (c *click) news() news {
	n := news{event: email.EventClicked, at: c.Timestamp}
	if u, err := url.Parse(c.Link); err == nil && u.Opaque == "" {
		u.User, u.RawQuery, u.ForceQuery, u.Fragment, u.RawFragment = nil, "", false, "", ""
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

func (s *subscription) news() news {
	return news{event: email.EventSubscriptionChanged, at: s.Timestamp, details: map[string]any{
		"contactList": s.ContactList, "source": s.Source, "unsubscribeAll": s.New.UnsubscribeAll,
	}}
}

// cut is the text's first n bytes, or a character's less.
func cut(text string, n int) string {
	if len(text) <= n {
		return text
	}
	for n > 0 && !utf8.RuneStart(text[n]) {
		n--
	}
	return strings.TrimSpace(text[:n])
}
