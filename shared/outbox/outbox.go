// Package outbox is for programs that share the gateway's database: it writes an email in
// the transaction that writes what the email is about. Both are there or neither is,
// whatever happens to the program, and no request has to be repeated.
//
//	tx, err := db.BeginTx(ctx, nil)
//	…insert the interview…
//	_, err = reminders.Enqueue(ctx, tx, outbox.Aggregate{Type: "interview", ID: id, EventType: "REMINDER_24H"}, outbox.Email{…})
//	err = tx.Commit()
//
// An email is checked by the rules of POST /v1/email/send before the transaction is
// touched; what only the database knows (may the company send from there, is the
// recipient known) is checked by the functions that this package calls, and their refusal
// ends the transaction as any failed statement does. Programs in other languages call
// them directly: schema/README.md.
//
// Nothing is announced: NOTIFY inside of a transaction would make all commits of the
// database queue up behind one lock. A dispatcher looks for new rows every 250 ms by itself
// (OUTBOX_POLL_INTERVAL), so that is how late an email is that is due at once. It finds the
// emails of a transaction that took more than 2 s within 30 s of the commit.
//
// Keep the transaction short. From Reschedule or Cancel until its end no worker touches
// the emails; from Enqueue on, another transaction that enqueues the same waits. A
// transaction writes at most 10,000 emails of a company: ErrTransactionFull.
//
// Programs that do not share the database send an Idempotency-Key with their request, or
// name the aggregate in it.
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
)

// Tx is a transaction that is under way. *sql.Tx is one, with any driver, and so is what
// embeds it.
type Tx interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// ErrNotFound: the company never had an email of this aggregate and event type.
var ErrNotFound = store.ErrNotFound

// ErrTransactionFull: the transaction has enqueued, moved or withdrawn 10,000 emails of the
// company already, and can do no more of them. It is ended as by any failed statement: commit
// before that, and go on in another transaction. Known with the driver lib/pq; others return
// their error with SQLSTATE EG413.
var ErrTransactionFull = store.ErrTransactionFull

// Params make an Outbox.
type Params struct {
	// CompanyID is whose emails they are. The program's database role must be allowed to
	// write them: gatewayctl program allow.
	CompanyID uuid.UUID
	// EmailTTL is the time an email has to reach the provider, from its commit or its
	// SendAt: 1 minute to 720 hours, 0 = 24 hours.
	EmailTTL time.Duration
	// HashKey is the installation's CPF_CNPJ_HASH_KEY, nil if it has none. Without it the
	// person behind a cpfCnpjHash is not the one that the api knows by the same.
	HashKey []byte
}

// Outbox writes, moves and withdraws one company's emails. It may be used by many
// goroutines, each with a transaction of its own.
type Outbox struct {
	company uuid.UUID
	ttl     time.Duration
	hashKey []byte
	rules   *rules.Rules
	html    *htmlcheck.Checker
}

// The bounds of EmailTTL, which are those of the variable EMAIL_TTL.
const (
	defaultTTL  = 24 * time.Hour
	shortestTTL = time.Minute
	longestTTL  = 720 * time.Hour
)

// New makes an Outbox. Its error is a mistake in the Params.
func New(p Params) (*Outbox, error) {
	ttl := cmp.Or(p.EmailTTL, defaultTTL)
	if p.CompanyID == uuid.Nil {
		return nil, errors.New("outbox: CompanyID is not set")
	}
	if ttl < shortestTTL || ttl > longestTTL {
		return nil, fmt.Errorf("outbox: EmailTTL must be %s to %s", shortestTTL, longestTTL)
	}
	checks, err := rules.New(nil)
	if err != nil {
		return nil, fmt.Errorf("prepare rules: %w", err)
	}
	return &Outbox{company: p.CompanyID, ttl: ttl, hashKey: p.HashKey, rules: checks, html: htmlcheck.New(runtime.GOMAXPROCS(0))}, nil
}

// Enqueued is an email that stands in the outbox when the transaction commits.
type Enqueued struct {
	ID uuid.UUID
	// Created is false when an email of this aggregate and event type was there already:
	// it is left as it is, whatever the new one says.
	Created bool
	Status  email.Status
}

// Enqueue writes an email about something, once per aggregate and event type: the first
// one stands, until it is cancelled. What is wrong with the email is an *InvalidError, and
// the transaction is as it was; other errors are the database's, and end it.
func (o *Outbox) Enqueue(ctx context.Context, tx Tx, about Aggregate, e Email) (Enqueued, error) {
	if email.IsBlank(e.RequestID) {
		e.RequestID = ""
	}
	body, sendAt, err := o.check(ctx, about, e)
	if err != nil {
		return Enqueued{}, err
	}
	done, err := store.EnqueueIn(ctx, tx, store.ProgramEmail{
		CompanyID: o.company, Aggregate: store.Aggregate(about), Body: body, SendAt: sendAt, TTL: o.ttl, RequestID: e.RequestID,
	})
	return Enqueued{ID: done.ID, Created: done.Done, Status: done.Status}, err
}

// Rescheduled is an email as it stands when the transaction commits.
type Rescheduled struct {
	ID uuid.UUID
	// Moved is false when it is too late: Status says whether it is being sent, was sent,
	// or came to another end.
	Moved  bool
	Status email.Status
}

// Reschedule moves an email to another time; the zero time, and one that has passed, is
// now. If it was moved and the transaction commits, it is not sent earlier and not twice,
// whatever of it stands on a queue. ErrNotFound if there is no such email.
func (o *Outbox) Reschedule(ctx context.Context, tx Tx, about Aggregate, sendAt time.Time) (Rescheduled, error) {
	sendAt, err := o.checkMove(about, sendAt)
	if err != nil {
		return Rescheduled{}, err
	}
	done, err := store.RescheduleIn(ctx, tx, o.company, store.Aggregate(about), sendAt, o.ttl)
	return Rescheduled{ID: done.ID, Moved: done.Done, Status: done.Status}, err
}

// Cancelled is an email as it stands when the transaction commits.
type Cancelled struct {
	ID        uuid.UUID
	EventType string
	// Cancelled is false when it is too late: Status says why.
	Cancelled bool
	Status    email.Status
}

// Cancel withdraws all emails about something, or with an EventType that one. Those that
// are cancelled already stay so; none is no error. A cancelled email's event type may be
// enqueued again.
func (o *Outbox) Cancel(ctx context.Context, tx Tx, about Aggregate) ([]Cancelled, error) {
	if err := o.checkCancel(about); err != nil {
		return nil, err
	}
	done, err := store.CancelIn(ctx, tx, o.company, store.Aggregate(about))
	if err != nil {
		return nil, err
	}
	all := make([]Cancelled, len(done))
	for i, d := range done {
		all[i] = Cancelled{ID: d.ID, EventType: d.EventType, Cancelled: d.Done, Status: d.Status}
	}
	return all, nil
}
