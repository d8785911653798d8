// Package outbox is for programs that share the gateway's database: it inserts an email in the
// transaction that writes what the email is about. Both are committed or neither is, and no request
// has to be repeated.
//
//	tx, err := db.BeginTx(ctx, nil)
//	…insert the interview…
//	_, err = reminders.Enqueue(ctx, tx, outbox.Aggregate{Type: "interview", ID: id, EventType: "REMINDER_24H"}, outbox.Email{…})
//	err = tx.Commit()
//
// An email is validated by the rules of POST /v1/email/send before the transaction is used. What
// only the database knows (may the company use this sender, is the recipient known) is checked by
// the functions that this package calls; their error aborts the transaction like any failed
// statement. Programs in other languages call them directly: schema/README.md.
//
// There is no NOTIFY: inside a transaction it would serialize all commits of the database behind
// one lock. A dispatcher polls for new rows every 250 ms (OUTBOX_POLL_INTERVAL), which is the
// maximum delay of an email that is due at once. It finds the emails of a transaction longer than 2
// s within 30 s of the commit.
//
// Keep the transaction short. From Reschedule or Cancel until its end no worker claims the emails;
// until then, another transaction that enqueues the same aggregate and event type waits. A
// transaction changes at most 10,000 emails of a company: ErrTransactionFull.
//
// Programs that do not share the database send an Idempotency-Key with their request, or the
// aggregate.
package outbox

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/google/uuid"

	"email-gateway/shared/email"
	"email-gateway/shared/htmlcheck"
	"email-gateway/shared/rules"
	"email-gateway/shared/store"
	outboxstore "email-gateway/shared/store/outbox"
)

// Tx is a running transaction. *sql.Tx implements it, with any driver, and so does any type that
// embeds it.
type Tx interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// ErrNotFound: the company has had no email of this aggregate and event type.
var ErrNotFound = store.ErrNotFound

// ErrTransactionFull: the transaction has already enqueued, rescheduled or cancelled 10,000 emails of the company. Like
// any failed statement, the error aborts the transaction: commit earlier, and continue in another transaction. With the
// driver lib/pq this error is returned; other drivers return their own error with SQLSTATE EG413.
var ErrTransactionFull = outboxstore.ErrTransactionFull

// ErrCompanySuspended: an operator has suspended the company, as in the API's 403 COMPANY_SUSPENDED. Enqueue and
// Reschedule return it, Cancel does not. It aborts the transaction. Other drivers than lib/pq return their own error with
// SQLSTATE EG403.
var ErrCompanySuspended = outboxstore.ErrCompanySuspended

// Params configure an Outbox.
type Params struct {
	// CompanyID is the company of the emails. The program's database role needs the permission to write them:
	// gatewayctl program allow.
	CompanyID uuid.UUID
	// EmailTTL is how long an email may take to reach the provider, from its commit or its SendAt:
	// 1 minute to 720 hours, 0 = 24 hours.
	EmailTTL time.Duration
	// HashKey is the installation's CPF_CNPJ_HASH_KEY, or nil if it has none. Without the right key a cpfCnpjHash does
	// not match the person that the api stored under the same hash.
	HashKey []byte
}

// Outbox enqueues, reschedules and cancels one company's emails. It is safe for concurrent use with
// separate transactions.
type Outbox struct {
	company uuid.UUID
	ttl     time.Duration
	hashKey []byte
	rules   *rules.Rules
	html    *htmlcheck.Checker
}

// New returns an Outbox. It fails if Params are invalid.
func New(p Params) (*Outbox, error) {
	ttl := cmp.Or(p.EmailTTL, email.DefaultTTL)
	if p.CompanyID == uuid.Nil {
		return nil, errors.New("outbox: CompanyID is not set")
	}
	if !email.IsTTL(ttl) {
		return nil, errors.New("outbox: EmailTTL " + email.TTLRange)
	}
	checks, err := rules.New(nil)
	if err != nil {
		return nil, fmt.Errorf("prepare rules: %w", err)
	}
	return &Outbox{company: p.CompanyID, ttl: ttl, hashKey: p.HashKey, rules: checks, html: htmlcheck.New(runtime.GOMAXPROCS(0))}, nil
}

// Enqueued is the result of Enqueue, valid once the transaction commits.
type Enqueued struct {
	ID uuid.UUID
	// Created is false if an email of this aggregate and event type exists already. That email stays unchanged, even if
	// the new one differs.
	Created bool
	Status  email.Status
}

// Enqueue inserts an email, once per aggregate and event type: the first email stays until it is cancelled. A
// validation failure is an *InvalidError and leaves the transaction usable. Other errors come from the database and
// abort the transaction.
func (o *Outbox) Enqueue(ctx context.Context, tx Tx, about Aggregate, e Email) (Enqueued, error) {
	if email.IsBlank(e.RequestID) {
		e.RequestID = ""
	}
	body, sendAt, err := o.check(ctx, about, e)
	if err != nil {
		return Enqueued{}, err
	}
	done, err := outboxstore.EnqueueIn(ctx, tx, outboxstore.ProgramEmail{
		CompanyID: o.company, Aggregate: outboxstore.Aggregate(about), Body: body, SendAt: sendAt, TTL: o.ttl, RequestID: e.RequestID,
	})
	return Enqueued{ID: done.ID, Created: done.Done, Status: done.Status}, err
}

// Rescheduled is the result of Reschedule, valid once the transaction commits.
type Rescheduled struct {
	ID uuid.UUID
	// Moved is false if it is too late: Status says whether it is being sent, was sent, or has
	// another final status.
	Moved  bool
	Status email.Status
}

// Reschedule moves an email to another time; the zero time and a past time mean now. If Moved is true and the
// transaction commits, the email is not sent earlier and not twice, even if a task for it is queued. ErrNotFound: there
// is no such email.
func (o *Outbox) Reschedule(ctx context.Context, tx Tx, about Aggregate, sendAt time.Time) (Rescheduled, error) {
	sendAt, err := o.checkMove(about, sendAt)
	if err != nil {
		return Rescheduled{}, err
	}
	done, err := outboxstore.RescheduleIn(ctx, tx, o.company, outboxstore.Aggregate(about), sendAt, o.ttl)
	return Rescheduled{ID: done.ID, Moved: done.Done, Status: done.Status}, err
}

// Cancelled is the result of Cancel for one email, valid once the transaction commits.
type Cancelled struct {
	ID        uuid.UUID
	EventType string
	// Cancelled is false if it is too late: Status is the reason.
	Cancelled bool
	Status    email.Status
}

// Cancel cancels all emails about an aggregate, or only that of EventType if it is set. Cancelled emails stay
// cancelled. It is not an error if there is no email. A cancelled email's event type may be enqueued again.
func (o *Outbox) Cancel(ctx context.Context, tx Tx, about Aggregate) ([]Cancelled, error) {
	if err := o.checkCancel(about); err != nil {
		return nil, err
	}
	done, err := outboxstore.CancelIn(ctx, tx, o.company, outboxstore.Aggregate(about))
	if err != nil {
		return nil, err
	}
	all := make([]Cancelled, len(done))
	for i, d := range done {
		all[i] = Cancelled{ID: d.ID, EventType: d.EventType, Cancelled: d.Done, Status: d.Status}
	}
	return all, nil
}
