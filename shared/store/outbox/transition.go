package outbox

import (
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"email-gateway/shared/email"
	"email-gateway/shared/store/breaker"
	"email-gateway/shared/store/internal/pg"
	"email-gateway/shared/store/recipient"
)

// Guard selects which emails a transition may move; all others stay unchanged.
type Guard string

const (
	// GuardClaim is the fence before the provider call: PENDING, ENQUEUED or
	// RETRY_SCHEDULED, due within a second, not expired, lane and company active, and the
	// circuit breaker closed, or the email is its probe; and the recipient was not suppressed since
	// the email was loaded. Only one task can win it per attempt, whatever the queue delivers.
	GuardClaim Guard = "claim"
	// GuardAttempt is the end of an attempt: PROCESSING under the transition's own
	// token. A refusal (FAILED or RETRY_SCHEDULED, outcome known) passes from
	// OUTCOME_UNKNOWN under that token too: the worker was slow, and has the outcome that is
	// waited for. An acceptance (SENT) passes from every status but SENT, because the
	// provider has accepted the email; a stale attempt's refusal changes nothing.
	GuardAttempt Guard = "attempt"
	// GuardFeedback is feedback of the provider that it accepted the
	// transition's attempt: every status but SENT passes. The outcome is known from then on.
	GuardFeedback Guard = "feedback"
	// GuardOpen is a stop from outside: PENDING, ENQUEUED or RETRY_SCHEDULED.
	GuardOpen Guard = "open"
	// GuardOverdue is GuardOpen for an email past its deadline.
	GuardOverdue Guard = "overdue"
	// GuardAbandoned is GuardAttempt for a process other than the one that made the attempt: PROCESSING
	// under the transition's token, and its lease has expired.
	GuardAbandoned Guard = "abandoned"
	// GuardUnresolved is OUTCOME_UNKNOWN under the transition's token, whose wait for the
	// provider's feedback is over.
	GuardUnresolved Guard = "unresolved"
	// GuardReplay is a retry requested by an operator or a tenant; the count of attempts begins at 0 again.
	// The email is FAILED, EXPIRED or CANCELLED, its body is not erased, its mailing was not cancelled as a
	// whole, and no newer email about the same aggregate has replaced it.
	GuardReplay Guard = "replay"
)

// lease is how long a claim holds. It covers the provider's 30 s and our own
// writes; less than 31 s left before the call means giving the email back.
const lease = 60 * time.Second

// Transition moves one email to a status and writes, in the same commit, its log,
// its events and, when it gave up, its dead letter. Every move that has an event is
// made by one; what the dispatcher does has none.
type Transition struct {
	ID    uuid.UUID
	Guard Guard
	// Token is the attempt: it becomes the claim with GuardClaim, and must be it with
	// GuardAttempt. With GuardReplay it is the replay's own, for it to be known again.
	Token  uuid.UUID
	Status email.Status
	Events []email.Event

	// GiveWay leaves an email alone that a program's open transaction is moving or
	// cancelling, instead of waiting for its end: it is Locked then. Only for emails about
	// something, and only from a resting place.
	GiveWay bool

	AddAttempts  int           // +1 claims a try, −1 gives it back
	AddThrottles int           // +1: the try was refused by a quota or met an outage, and is not counted
	Delay        time.Duration // next_at = now + Delay, when Status waits for something
	Renew        time.Duration // > 0: a new deadline this far away
	// TaskWaits: with RETRY_SCHEDULED, the email's task waits on the queue until then.
	// Otherwise the dispatcher makes a new one.
	TaskWaits bool

	OutcomeUnknown    bool // sticky; cleared by GuardFeedback only
	PossibleDuplicate bool // sticky

	ErrorCode, ErrorReason string
	SESMessageID           string
	Duration               time.Duration        // of the attempt
	Recipient              *recipient.Recipient // the claim's statement about the person; its CPFCNPJ comes from the outbox row; without Email, the email's To applies and counts as no statement
	DeadLetter             bool
	// Company is set by callers who do something else when the email is Locked: it then waits
	// for no locked recipient after another email of the company did, and for no connection of
	// its own.
	Company uuid.UUID

	// skipLockedPerson: the email is Locked if its recipient's row is.
	skipLockedPerson bool
	events           []byte // Events as JSON
}

// encoded is the transition as its columns take it. It is made by the caller's
// goroutine and not by the group's: an event that cannot be encoded must not take
// its neighbours with it.
func (t Transition) encoded() (Transition, error) {
	var err error
	if t.events, err = EncodeEvents(t.Events); err != nil {
		return t, err
	}
	t.ErrorCode, t.ErrorReason, t.SESMessageID = pg.WithoutNUL(t.ErrorCode), pg.WithoutNUL(t.ErrorReason), pg.WithoutNUL(t.SESMessageID)
	return t, nil
}

// waits returns where the email waits for its due time: "outbox" for the dispatcher or another
// loop, "queue" with a task that runs then, "" if its status has no due time and the row
// keeps the one it had.
func (t *Transition) waits() string {
	switch {
	case t.Status == email.RetryScheduled && t.TaskWaits:
		return "queue"
	case t.Status == email.Pending, t.Status == email.RetryScheduled, t.Status == email.OutcomeUnknown:
		return "outbox"
	}
	return ""
}

// person is the recipient to write down, the empty one if there is none.
func (t *Transition) person() recipient.Recipient {
	if t.Recipient == nil {
		return recipient.Recipient{}
	}
	return *t.Recipient
}

// skipCompany is the company whose recipient the email leaves alone if it is locked; uuid.Nil
// if the email waits for it.
func (t *Transition) skipCompany() uuid.UUID {
	if !t.skipLockedPerson {
		return uuid.Nil
	}
	return t.Company
}

// Advanced is the result of a Transition.
type Advanced struct {
	Applied bool
	// Locked: another transaction holds a row of the email, or what it writes besides, and
	// nothing was changed. The same transition may be applied another time.
	Locked bool
	// Status is the email's status now; "" if there is no such email, or it is Locked.
	Status   email.Status
	Attempts int
	// Throttles of those attempts were refused by a quota or met an outage.
	Throttles int
	// LeaseUntil is how long a won claim holds, by our own clock.
	LeaseUntil time.Time
	// SameToken: the row's claim is the transition's own. With Applied
	// false, an earlier try of the same write succeeded.
	SameToken bool
	// Erased: the email's body was deleted by its retention: it cannot be
	// sent again.
	Erased bool
	// Replaced: a replay was refused because another email of the same aggregate has replaced this
	// one: it stays cancelled.
	Replaced bool
	// Breaker is the state of the circuit breaker when the transition was made.
	Breaker breaker.Pass

	// CompanyID, RequestID and MailingID name the email in the log; only with Applied.
	CompanyID uuid.UUID
	RequestID string
	MailingID uuid.UUID // uuid.Nil = it is of no mailing
}

// advance calls run with the statement's arguments, and returns the result of each
// transition.
func advance(ts []Transition, arguments []any, run func(rows any, columns []any) error) ([]Advanced, error) {
	begun := time.Now()
	var rows []struct {
		ID        uuid.UUID    `db:"id"`
		Applied   bool         `db:"applied"`
		Status    email.Status `db:"status"`
		Attempts  int          `db:"attempts"`
		Throttles int          `db:"throttles"`
		SameToken bool         `db:"same_token"`
		Erased    bool         `db:"erased"`
		Replaced  bool         `db:"replaced"`
		Probe     bool         `db:"probe"`
		Openings  int64        `db:"openings"`
		Locked    bool         `db:"locked"`

		CompanyID uuid.NullUUID `db:"company_id"`
		RequestID string        `db:"request_id"`
		MailingID uuid.NullUUID `db:"mailing_id"`
	}
	if err := run(&rows, arguments); err != nil {
		return nil, fmt.Errorf("advance emails: %w", err)
	}
	// The lease began on Postgres's clock somewhere after begun on ours: counting
	// from begun never believes in more of it than there is.
	until := begun.Add(lease)
	byID := make(map[uuid.UUID]Advanced, len(rows))
	for _, r := range rows {
		byID[r.ID] = Advanced{
			Applied: r.Applied, Locked: r.Locked, Status: r.Status, Attempts: r.Attempts, Throttles: r.Throttles,
			LeaseUntil: until, SameToken: r.SameToken, Erased: r.Erased, Replaced: r.Replaced, Breaker: breaker.Pass{Probe: r.Probe, Openings: r.Openings},
			CompanyID: r.CompanyID.UUID, RequestID: r.RequestID, MailingID: r.MailingID.UUID,
		}
	}
	results := make([]Advanced, len(ts))
	for i := range ts {
		results[i] = byID[ts[i].ID]
	}
	return results, nil
}

// advanceScalars are what advance.sql takes besides the transitions.
type advanceScalars struct {
	count       int // of the transitions
	first, last uuid.UUID
	wait        time.Duration
}

// plain reports whether advance_plain.sql can apply the transitions. It lacks what a recipient, a dead letter, an email that
// is replaced and a replay need. Emails of mailings need none of it: the expansion has written their recipients.
func plain(ts []Transition) bool {
	return !slices.ContainsFunc(ts, func(t Transition) bool {
		return t.GiveWay || t.Recipient != nil || t.DeadLetter || t.Guard == GuardReplay
	})
}

func advanceArguments(p pg.Parameters[advanceScalars, Transition], ts []Transition, wait time.Duration) []any {
	first, last := pg.IDRange(ts, func(t *Transition) uuid.UUID { return t.ID })
	return p.Arguments(advanceScalars{len(ts), first, last, wait}, ts)
}

// plainParameters are the parameters of advance_plain.sql.
var plainParameters = pg.Parameters[advanceScalars, Transition]{
	Scalars: []pg.Scalar[advanceScalars]{
		pg.One("lock_timeout", "text", func(s advanceScalars) any { return pg.LockTimeout(s.wait) }),
		pg.One("count", "bigint", func(s advanceScalars) any { return s.count }),
		pg.One("first_id", "uuid", func(s advanceScalars) any { return s.first }),
		pg.One("last_id", "uuid", func(s advanceScalars) any { return s.last }),
		pg.One("lease_ms", "double precision", func(advanceScalars) any { return lease.Milliseconds() }),
	},
	Columns: []pg.Column[Transition]{
		pg.Each("id", "uuid", pg.UUIDs, func(t *Transition) uuid.UUID { return t.ID }),
		pg.Each("guard", "text", pg.Texts, func(t *Transition) string { return string(t.Guard) }),
		pg.Each("token", "uuid", pg.OptionalUUIDs, func(t *Transition) uuid.UUID { return t.Token }),
		pg.Each("status", "text", pg.Texts, func(t *Transition) string { return string(t.Status) }),
		pg.Each("events", "jsonb", pg.JSONBs, func(t *Transition) []byte { return t.events }),
		pg.Each("add_attempts", "bigint", pg.BigInts, func(t *Transition) int64 { return int64(t.AddAttempts) }),
		pg.Each("add_throttles", "bigint", pg.BigInts, func(t *Transition) int64 { return int64(t.AddThrottles) }),
		pg.Each("waits", "text", pg.Texts, func(t *Transition) string { return t.waits() }),
		pg.Each("delay_ms", "bigint", pg.BigInts, func(t *Transition) int64 { return t.Delay.Milliseconds() }),
		pg.Each("renew_ms", "bigint", pg.BigInts, func(t *Transition) int64 { return t.Renew.Milliseconds() }),
		pg.Each("outcome_unknown", "bool", pg.Bools, func(t *Transition) bool { return t.OutcomeUnknown }),
		pg.Each("possible_duplicate", "bool", pg.Bools, func(t *Transition) bool { return t.PossibleDuplicate }),
		pg.Each("error_code", "text", pg.OptionalTexts, func(t *Transition) string { return t.ErrorCode }),
		pg.Each("error_reason", "text", pg.OptionalTexts, func(t *Transition) string { return t.ErrorReason }),
		pg.Each("ses_message_id", "text", pg.OptionalTexts, func(t *Transition) string { return t.SESMessageID }),
		pg.Each("duration_ms", "bigint", pg.OptionalBigInts, func(t *Transition) int64 { return t.Duration.Milliseconds() }),
	},
}

// advanceParameters are the parameters of advance.sql and advance_waiting.sql.
var advanceParameters = pg.Parameters[advanceScalars, Transition]{
	Scalars: slices.Concat(plainParameters.Scalars, []pg.Scalar[advanceScalars]{
		pg.One("people_from", "uuid", func(advanceScalars) any { return recipient.PeopleFrom() }),
	}),
	Columns: slices.Concat(plainParameters.Columns, []pg.Column[Transition]{
		pg.Each("dead_letter", "bool", pg.Bools, func(t *Transition) bool { return t.DeadLetter }),
		pg.Each("recipient_id", "uuid", pg.OptionalUUIDs, func(t *Transition) uuid.UUID { return t.person().ID }),
		pg.Each("external_id", "text", pg.OptionalTexts, func(t *Transition) string { return t.person().ExternalID }),
		pg.Each("cpf_cnpj_hash", "text", pg.OptionalTexts, func(t *Transition) string { return t.person().CPFCNPJHash }),
		pg.Each("razao_social", "text", pg.OptionalTexts, func(t *Transition) string { return t.person().RazaoSocial }),
		pg.Each("nome", "text", pg.OptionalTexts, func(t *Transition) string { return t.person().Nome }),
		pg.Each("email", "text", pg.OptionalTexts, func(t *Transition) string { return t.person().Email }),
		pg.Each("give_way", "bool", pg.Bools, func(t *Transition) bool { return t.GiveWay }),
		pg.Each("skip_company", "uuid", pg.OptionalUUIDs, func(t *Transition) uuid.UUID { return t.skipCompany() }),
	}),
}
