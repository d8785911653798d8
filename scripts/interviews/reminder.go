package interviews

import (
	"fmt"
	"html"
	"time"

	"email-gateway/shared/email"
	"email-gateway/shared/outbox"
)

const aggregateType = "interview"

// Reminder is one of an interview's emails.
type Reminder struct {
	EventType string
	At        time.Time
	Status    email.Status
	TooLate   bool // to reschedule or withdraw it
}

// reminders returns the two reminders of an interview.
func (i Interview) reminders() []Reminder {
	return []Reminder{
		{EventType: "REMINDER_24H", At: i.At.Add(-24 * time.Hour)},
		{EventType: "REMINDER_1H", At: i.At.Add(-time.Hour)},
	}
}

// email returns the email of a reminder. A move changes its time, but not its text, so the text
// does not contain the hour. An email whose text does would have to be withdrawn and written again.
func (i Interview) email(r Reminder) outbox.Email {
	in := "amanhã"
	if r.EventType == "REMINDER_1H" {
		in = "em uma hora"
	}
	return outbox.Email{
		To:        i.Candidate,
		Subject:   fmt.Sprintf("Sua entrevista é %s", in),
		HTML:      fmt.Sprintf("<p>Olá! Sua entrevista é %s.</p><p>%s</p>", in, html.EscapeString(i.Candidate)),
		Tags:      []string{"lembrete"},
		Recipient: outbox.Recipient{ExternalID: i.Candidate},
		SendAt:    r.At,
	}
}
