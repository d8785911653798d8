package sesmail

import (
	"encoding/json"
	"strings"
	"time"
)

// stamp formats a time as SES does.
func stamp(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z") }

// Event returns the JSON that SES publishes about a mail. kind is one of sessim.EventKinds; about are
// the recipients concerned.
func Event(m *Mail, kind string, about []string, now time.Time) (string, error) {
	name, detail, _ := strings.Cut(kind, ":")
	e := map[string]any{"eventType": name, "mail": mailObject(m)}
	people := make([]map[string]any, len(about))
	for i, address := range about {
		people[i] = map[string]any{"emailAddress": BareAddress(address)}
	}
	at := stamp(now)
	switch name {
	case "Send":
		e["send"] = map[string]any{}
	case "Delivery":
		e["delivery"] = map[string]any{
			"timestamp": at, "processingTimeMillis": now.Sub(m.Time).Milliseconds(), "recipients": AddressesOf(m),
			"smtpResponse": "250 2.6.0 Message received", "remoteMtaIp": "192.0.2.25", "reportingMTA": "sim.smtp-out.amazonses.com",
		}
	case "DeliveryDelay":
		for _, p := range people {
			p["status"], p["diagnosticCode"] = "4.4.1", "smtp; 421 4.4.1 Unable to connect to remote host"
		}
		e["deliveryDelay"] = map[string]any{
			"timestamp": at, "delayType": "TransientCommunicationFailure", "expirationTime": stamp(m.Time.Add(14 * time.Hour)), "delayedRecipients": people,
		}
	case "Bounce":
		e["bounce"] = bounceObject(detail, people, at)
	case "Complaint":
		sort := "abuse"
		if detail != "" {
			sort = detail
		}
		e["complaint"] = map[string]any{
			"complainedRecipients": people, "timestamp": at, "feedbackId": NewRequestID(), "complaintSubType": nil,
			"userAgent": "Amazon SES Mailbox Simulator", "complaintFeedbackType": sort, "arrivalDate": at,
		}
	case "Reject":
		e["reject"] = map[string]any{"reason": "Bad content"}
	case "Rendering Failure":
		e["failure"] = map[string]any{"errorMessage": "Attribute 'attributeName' is not present in the rendering data.", "templateName": "MyTemplate"}
	case "Open":
		e["open"] = map[string]any{"ipAddress": "192.0.2.1", "timestamp": at, "userAgent": "Mozilla/5.0"}
	case "Click":
		e["click"] = map[string]any{
			"ipAddress": "192.0.2.1", "timestamp": at, "userAgent": "Mozilla/5.0", "link": "https://acme.example/fatura?id=7", "linkTags": map[string]any{},
		}
	case "Subscription":
		e["subscription"] = map[string]any{
			"contactList": "ContactList", "timestamp": at, "source": "UnsubscribeHeader",
			"newTopicPreferences": map[string]any{"unsubscribeAll": true}, "oldTopicPreferences": map[string]any{"unsubscribeAll": false},
		}
	}
	text, err := json.Marshal(e)
	return string(text), err
}

// bounceObject: detail is empty for an address that does not exist.
func bounceObject(detail string, people []map[string]any, at string) map[string]any {
	sort, subType, status, text := "Permanent", "General", "5.1.1", "smtp; 550 5.1.1 user unknown"
	switch detail {
	case "Transient":
		sort, status, text = "Transient", "4.2.2", "smtp; 452 4.2.2 mailbox full"
	case "OnAccountSuppressionList":
		subType, text = detail, "Amazon SES did not send the message to this address because it is on the suppression list for your account."
	}
	for _, p := range people {
		p["action"], p["status"], p["diagnosticCode"] = "failed", status, text
	}
	return map[string]any{
		"bounceType": sort, "bounceSubType": subType, "bouncedRecipients": people, "timestamp": at,
		"feedbackId": NewRequestID(), "reportingMTA": "dns; sim.smtp-out.amazonses.com",
	}
}

// mailObject returns the mail's fields of every event. Tags are lists.
func mailObject(m *Mail) map[string]any {
	tags := map[string][]string{"ses:operation": {"SendEmail"}, "ses:configuration-set": {m.ConfigurationSet}, "ses:caller-identity": {"sim"}}
	for _, tag := range m.Tags {
		tags[tag.Name] = append(tags[tag.Name], tag.Value)
	}
	headers := []Pair{{Name: "From", Value: m.From}, {Name: "To", Value: strings.Join(m.To, ", ")}, {Name: "Subject", Value: m.Subject}}
	return map[string]any{
		"timestamp": stamp(m.Time), "messageId": m.MessageID, "source": m.From, "sendingAccountId": "123456789012",
		"sourceArn":   "arn:aws:ses:us-east-1:123456789012:identity/sim",
		"destination": AddressesOf(m), "headersTruncated": false, "headers": append(headers, m.Headers...),
		"commonHeaders": map[string]any{"from": []string{m.From}, "to": m.To, "messageId": m.MessageID, "subject": m.Subject},
		"tags":          tags,
	}
}

// AddressesOf returns the recipients of a mail without display names.
func AddressesOf(m *Mail) []string {
	list := []string{}
	for r := range m.Recipients {
		list = append(list, BareAddress(r))
	}
	return list
}
