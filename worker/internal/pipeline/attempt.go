package pipeline

import (
	"context"
	"encoding/json"
	"log/slog"
	"maps"
	"strings"
	"time"

	"github.com/google/uuid"

	"email-gateway/shared/email"
	"email-gateway/shared/plaintext"
	breakerstore "email-gateway/shared/store/breaker"
	"email-gateway/shared/store/outbox"
	"email-gateway/shared/store/recipient"
	"email-gateway/shared/telemetry"
	"email-gateway/shared/unsubscribe"
	"email-gateway/worker/internal/attachment"
	"email-gateway/worker/internal/breaker"
	"email-gateway/worker/internal/provider"
)

// attempt is one attempt to send one email, from the moment its task was received.
type attempt struct {
	id       uuid.UUID // the claim token; sent to the provider as a tag
	row      *outbox.LoadedEmail
	task     email.SendJob // the queue's payload: checked, not trusted
	job      email.SendJob // the outbox row's payload: sent
	queue    string        // the queue the task came from
	received time.Time
	// unreadable is the error that kept job from being decoded. unrenderable is the error that kept
	// a mailing's email from being rendered. Both are nil otherwise.
	unreadable, unrenderable error
	html, text               string
	autoText                 bool             // without text, one is made from html
	link                     string           // for unsubscribing; "" = none
	template                 *body            // of a mailing's emails, until they are rendered
	shared                   *bodySize        // of a mailing's emails; nil for others
	room                     *attachment.Room // memory of body and attachments
	attachments              []provider.Attachment
	probe                    bool // the circuit breaker waits for this attempt's call
	// attempts and throttles include this attempt once its claim has succeeded.
	attempts, throttles int
	pass                breakerstore.Pass // the circuit breaker's state at the claim
	givenUp             bool              // a release may have been recorded in its place while the claim's answer was missing: no call
	called              time.Time         // when the provider call began; zero = no call yet
	state               email.EventType
	reached             []reached // the states so far; counted when the claim or the refusal is committed
	excused             bool      // the call was made during an outage: it counts like a throttled attempt
}

func newAttempt(row *outbox.LoadedEmail, task email.SendJob, d *delivery) *attempt {
	a := &attempt{
		id: uuid.New(), row: row, task: task, queue: d.Queue, received: d.received,
		probe: row.Probe && row.Status.Claimable(), room: &attachment.Room{Release: func() {}},
		attempts: row.Attempts + 1, throttles: row.Throttles, html: row.HTML, text: row.Text, autoText: row.AutoText,
	}
	row.HTML, row.Text = "", "" // the attempt has them, until the call
	a.reach(email.EventReceived)
	a.unreadable = json.Unmarshal(row.Payload, &a.job)
	a.job.CC, a.job.BCC = withoutSuppressed(a.job.CC, row.SuppressedCopies), withoutSuppressed(a.job.BCC, row.SuppressedCopies)
	return a
}

// counted is the number of this attempt as EMAIL_MAX_ATTEMPTS counts it: throttled attempts are excluded.
func (a *attempt) counted() int { return a.attempts - a.throttles }

func (a *attempt) applyClaim(claim outbox.Advanced) {
	a.attempts, a.throttles, a.pass = claim.Attempts, claim.Throttles, claim.Breaker
}

func (a *attempt) logger(ctx context.Context, log *slog.Logger) *slog.Logger {
	if trace := telemetry.TraceIDOf(ctx); trace != "" {
		log = log.With(telemetry.TraceID, trace)
	}
	return telemetry.EmailLogger(log, telemetry.Email{
		OutboxID: a.row.ID.String(), RequestID: a.row.RequestID, CompanyID: a.row.CompanyID.String(),
		MailingID: telemetry.ID(a.row.MailingID.UUID), Attempt: a.counted(), Recipient: a.job.Recipient,
		State: func() string { return string(a.state) }, Since: a.received,
	})
}

// reached is a pipeline state and the time from the task's receipt until the attempt reached it.
type reached struct {
	state email.EventType
	after time.Duration
}

func (a *attempt) reach(state email.EventType) {
	a.state = state
	a.reached = append(a.reached, reached{state, time.Since(a.received)})
}

// transition returns a transition out of a status in which an API call may be changing the email at
// the same time.
func (a *attempt) transition(guard outbox.Guard, to email.Status) outbox.Transition {
	return outbox.Transition{ID: a.row.ID, Guard: guard, GiveWay: a.row.HasAggregate, Status: to}
}

// call describes this attempt to the circuit breaker.
func (a *attempt) call(maxAttempts int) breaker.Call {
	return breaker.Call{
		Email: a.row.ID, Attempt: a.id, Company: a.row.CompanyID, Sender: a.senderAddress(), Began: a.called, Pass: a.pass, Last: a.counted() >= maxAttempts,
	}
}

// senderAddress is the address of the sender, which the outbox stores as a From header: alone or behind a name.
func (a *attempt) senderAddress() string {
	return strings.TrimSuffix(a.row.Sender[strings.LastIndexByte(a.row.Sender, '<')+1:], ">")
}

// end returns a transition out of PROCESSING, guarded by this attempt's claim token.
func (a *attempt) end(to email.Status) outbox.Transition {
	t := outbox.Transition{ID: a.row.ID, Guard: outbox.GuardAttempt, Status: to, Token: a.id}
	t.Duration = max(time.Since(a.received), time.Millisecond)
	return t
}

// claim returns the transition to PROCESSING. It carries the three events that precede the call and
// the recipient to store.
func (a *attempt) claim(now time.Time) outbox.Transition {
	t := a.transition(outbox.GuardClaim, email.Processing)
	t.Token, t.AddAttempts, t.Company = a.id, 1, a.row.CompanyID
	sending := map[string]any{"attempt": a.counted(), "attemptId": a.id}
	if len(a.row.SuppressedCopies) > 0 {
		sending["suppressedCopies"] = a.row.SuppressedCopies
	}
	t.Events = []email.Event{
		a.receivedEvent(),
		event(email.EventValidated, now, map[string]any{"validations": validations()}),
		event(email.EventSentAttempt, now, sending),
	}
	t.Recipient = a.recipient()
	return t
}

// recipient returns the recipient data of the email, under the recipientId in the payload or else
// the id derived from its identifiers. With a recipientId there is no address in the result (the
// api has compared it). The result is nil if a recipientId comes without other data, or if the
// email belongs to a mailing: the mailing step has stored the entry's data already. For an email of
// a mailing whose recipientId is null, the claim writes the id to the log and no recipient.
func (a *attempt) recipient() *recipient.Recipient {
	r := a.job.Recipient
	said := recipient.Recipient{ExternalID: r.ExternalID, CPFCNPJHash: r.CPFCNPJHash, RazaoSocial: r.RazaoSocial, Nome: r.Nome}
	id, err := uuid.Parse(r.RecipientID)
	if err == nil && (a.row.MailingID.Valid || said == (recipient.Recipient{})) {
		return nil
	}
	if err != nil {
		id, said.Email = recipient.ID(a.row.CompanyID, r.ExternalID, r.CPFCNPJHash, r.Email), r.Email
	}
	said.ID = id
	return &said
}

func (a *attempt) receivedEvent() email.Event {
	return event(email.EventReceived, a.received, map[string]any{"attempt": a.counted(), "jobId": a.row.ID})
}

// addText makes the text part from the html, unless the email has one or its request turned that off.
func (a *attempt) addText() {
	if a.text == "" && a.autoText {
		a.text = plaintext.FromHTML(a.html)
	}
}

// unsubscribesFrom returns the mailing that the email, or the test email, belongs to.
func (a *attempt) unsubscribesFrom() (mailing uuid.UUID, ok bool) {
	if a.row.MailingID.Valid {
		return a.row.MailingID.UUID, true
	}
	return unsubscribe.Referenced(a.job.Headers)
}

// need is what the email needs memory for: nothing without attachments and with a small body.
func (a *attempt) need(body int64) attachment.Need {
	n := attachment.Need{Company: a.row.CompanyID, Lane: a.queue, Owner: a.row.ID, Count: a.row.Attachments}
	if a.shared != nil {
		n.Owner, n.Count = a.row.MailingID.UUID, a.shared.files
		n.Lane += n.Owner.String()
	}
	if body > outbox.SmallBody {
		n.Body = body
	}
	return n
}

// storedSize is the size of the body before it is read or rendered: that of a mailing's email is estimated. Its fields are
// in memory too while it is rendered.
func (a *attempt) storedSize() int64 {
	if a.shared != nil {
		return max(a.shared.size.Load(), a.row.LargeFields)
	}
	return a.row.LargeBody
}

// forgetContent drops body and attachments, since the result may be recorded much later.
func (a *attempt) forgetContent() { a.html, a.text, a.attachments = "", "", nil }

// message builds the provider message from the outbox row.
func (a *attempt) message() provider.Message {
	headers := a.job.Headers
	if a.link != "" {
		headers = make(map[string]string, len(a.job.Headers)+2)
		maps.Copy(headers, a.job.Headers)
		maps.Copy(headers, unsubscribe.Headers(a.link))
	}
	return provider.Message{
		From: a.row.Sender, To: a.job.To, CC: a.job.CC, BCC: a.job.BCC, ReplyTo: a.job.ReplyTo,
		Subject: a.job.Subject, HTML: a.html, Text: a.text, Headers: headers, Attachments: a.attachments,
		OutboxID: a.row.ID.String(), AttemptID: a.id.String(), CompanyID: a.row.CompanyID.String(),
		InstallationID: a.row.InstallationID.String(),
	}
}

func (a *attempt) recipients() int { return 1 + len(a.job.CC) + len(a.job.BCC) }

func event(kind email.EventType, at time.Time, metadata map[string]any) email.Event {
	return email.Event{Type: kind, At: at.UTC(), Metadata: metadata}
}
