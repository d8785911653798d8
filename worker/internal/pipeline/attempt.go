package pipeline

import (
	"context"
	"encoding/json"
	"log/slog"
	"maps"
	"time"

	"github.com/google/uuid"

	"email-gateway/shared/email"
	"email-gateway/shared/store"
	"email-gateway/shared/telemetry"
	"email-gateway/worker/internal/gate"
	"email-gateway/worker/internal/provider"
)

// attempt is one try of one email, from the moment its task was received.
type attempt struct {
	id       uuid.UUID // the claim token; travels to the provider as a tag
	row      *store.LoadedEmail
	task     email.SendJob // what the queue brought: checked, not trusted
	job      email.SendJob // what the outbox holds: sent
	queue    string        // that the task came from
	received time.Time
	// unreadable is why job is not complete, unrenderable why an email of a mailing
	// has no body, if so.
	unreadable, unrenderable error
	html, text               string
	unsubscribe              map[string]string // headers of a mailing's email
	// tries and throttles count this attempt too once it is won.
	tries, throttles int
	pass             store.GatePass // how the claim met the provider's gate
	called           time.Time      // when the provider was asked; zero = not yet
	state            email.EventType
	reached          []reached // the states so far, which count when the claim or the refusal is committed
	unspent          bool      // the try is given back: no call was made, or none that counts
	excused          bool      // the call was made in an outage: the try counts like a throttled one
}

func newAttempt(row *store.LoadedEmail, task email.SendJob, queue string, received time.Time) *attempt {
	a := &attempt{
		id: uuid.New(), row: row, task: task, queue: queue, received: received,
		tries: row.Attempts + 1, throttles: row.Throttles, html: row.HTML, text: row.Text,
	}
	a.reach(email.EventReceived)
	a.unreadable = json.Unmarshal(row.Payload, &a.job)
	a.job.CC, a.job.BCC = leaveOut(a.job.CC, row.SuppressedCopies), leaveOut(a.job.BCC, row.SuppressedCopies)
	return a
}

// number is which try this is of those that EMAIL_MAX_ATTEMPTS counts: throttled ones
// are not among them.
func (a *attempt) number() int { return a.tries - a.throttles }

func (a *attempt) won(claim store.Advanced) {
	a.tries, a.throttles, a.pass = claim.Attempts, claim.Throttles, claim.Gate
}

func (a *attempt) logger(ctx context.Context, log *slog.Logger) *slog.Logger {
	if trace := telemetry.TraceIDOf(ctx); trace != "" {
		log = log.With(telemetry.TraceID, trace)
	}
	return telemetry.EmailLogger(log, telemetry.Email{
		OutboxID: a.row.ID.String(), RequestID: a.row.RequestID, CompanyID: a.row.CompanyID.String(),
		MailingID: telemetry.ID(a.row.MailingID.UUID), Attempt: a.number(), Recipient: a.job.Recipient,
		State: func() string { return string(a.state) }, Since: a.received,
	})
}

// reached is a state of the pipeline and how long after the task's receipt the attempt came to it.
type reached struct {
	state email.EventType
	after time.Duration
}

func (a *attempt) reach(state email.EventType) {
	a.state = state
	a.reached = append(a.reached, reached{state, time.Since(a.received)})
}

// transition is one from a resting place. There a program may be changing the email.
func (a *attempt) transition(guard store.Guard, to email.Status) store.Transition {
	return store.Transition{ID: a.row.ID, Guard: guard, GiveWay: a.row.About, Status: to}
}

// call is this attempt for the circuit breaker.
func (a *attempt) call(maxAttempts int) gate.Call {
	return gate.Call{Email: a.row.ID, Attempt: a.id, Pass: a.pass, Last: a.number() >= maxAttempts}
}

// end is a transition out of PROCESSING, under this attempt's claim.
func (a *attempt) end(to email.Status) store.Transition {
	t := store.Transition{ID: a.row.ID, Guard: store.GuardAttempt, Status: to, Token: a.id}
	t.Duration = max(time.Since(a.received), time.Millisecond)
	if a.unspent {
		t.AddAttempts = -1
	}
	return t
}

// claim is the transition that wins the fence. It carries the three events that
// precede the call and the recipient to write down.
func (a *attempt) claim(now time.Time) store.Transition {
	t := a.transition(store.GuardClaim, email.Processing)
	t.Token, t.AddAttempts, t.Company = a.id, 1, a.row.CompanyID
	sending := map[string]any{"attempt": a.number(), "attemptId": a.id}
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

// recipient is what the email says about its recipient, under the id that it names or
// else the one derived from its identifiers. An email that names an id states no address
// (the api has compared it), and may have nothing to say at all: nil. So has an email of a mailing that
// names an id: the step that made it has written what its entry says.
func (a *attempt) recipient() *store.Recipient {
	r := a.job.Recipient
	said := store.Recipient{ExternalID: r.ExternalID, CPFCNPJHash: r.CPFCNPJHash, RazaoSocial: r.RazaoSocial, Nome: r.Nome}
	id, err := uuid.Parse(r.RecipientID)
	if err == nil && (a.row.MailingID.Valid || said == (store.Recipient{})) {
		return nil
	}
	if err != nil {
		id, said.Email = store.RecipientID(a.row.CompanyID, r.ExternalID, r.CPFCNPJHash, r.Email), r.Email
	}
	said.ID = id
	return &said
}

func (a *attempt) receivedEvent() email.Event {
	return event(email.EventReceived, a.received, map[string]any{"attempt": a.number(), "jobId": a.row.ID})
}

// message is what goes to the provider, from the outbox row.
func (a *attempt) message() provider.Message {
	headers := a.job.Headers
	if len(a.unsubscribe) > 0 {
		headers = make(map[string]string, len(a.job.Headers)+len(a.unsubscribe))
		maps.Copy(headers, a.job.Headers)
		maps.Copy(headers, a.unsubscribe)
	}
	return provider.Message{
		From: a.row.Sender, To: a.job.To, CC: a.job.CC, BCC: a.job.BCC, ReplyTo: a.job.ReplyTo,
		Subject: a.job.Subject, HTML: a.html, Text: a.text, Headers: headers,
		OutboxID: a.row.ID.String(), AttemptID: a.id.String(), CompanyID: a.row.CompanyID.String(),
	}
}

func (a *attempt) recipients() int { return 1 + len(a.job.CC) + len(a.job.BCC) }

func event(kind email.EventType, at time.Time, metadata map[string]any) email.Event {
	return email.Event{Type: kind, At: at.UTC(), Metadata: metadata}
}
