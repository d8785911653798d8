package outbox

import (
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"email-gateway/shared/email"
	"email-gateway/shared/store/breaker"
	"email-gateway/shared/store/internal/pg"
	"email-gateway/shared/store/internal/pgtext"
	"email-gateway/shared/store/recipient"
)

// Guard selects which emails a transition may move; all others stay unchanged.
type Guard string

const (
	// GuardClaim is checked before the provider call. The email is PENDING, ENQUEUED or RETRY_SCHEDULED, due within a
	// second and not expired; its lane and company are active; the circuit breaker is closed, or the email is its
	// probe; and the recipient was not suppressed since the email was loaded. Only one task can claim an attempt, even
	// if the queue delivers several.
	GuardClaim Guard = "claim"
	// GuardAttempt is the end of an attempt: PROCESSING under the transition's own token. A refusal (FAILED or
	// RETRY_SCHEDULED, outcome known) is also applied to OUTCOME_UNKNOWN under that token: a slow worker reports the
	// outcome late. An acceptance (SENT) is applied to every status but SENT, because the provider has accepted the
	// email; while another attempt is PROCESSING or OUTCOME_UNKNOWN, the email becomes a possible duplicate. A refusal of
	// a stale attempt changes nothing.
	GuardAttempt Guard = "attempt"
	// GuardFeedback is feedback of the provider that it accepted the transition's attempt. It is applied like an acceptance
	// with GuardAttempt, and makes the outcome known.
	GuardFeedback Guard = "feedback"
	// GuardOpen matches an email that no worker has claimed: PENDING, ENQUEUED or RETRY_SCHEDULED.
	GuardOpen Guard = "open"
	// GuardOverdue is GuardOpen for an email past its deadline.
	GuardOverdue Guard = "overdue"
	// GuardAbandoned is GuardAttempt for a process that did not make the attempt: PROCESSING under the transition's
	// token, with an expired lease.
	GuardAbandoned Guard = "abandoned"
	// GuardUnresolved is OUTCOME_UNKNOWN under the transition's token, after the wait for the provider's feedback is
	// over.
	GuardUnresolved Guard = "unresolved"
	// GuardReplay is a retry requested by an operator or a tenant, which resets the count of attempts to 0. The email
	// is due immediately, or at the time that it is scheduled for. It was FAILED, EXPIRED or CANCELLED, its body is not
	// erased, its mailing was not cancelled as a whole, and no newer email about the same aggregate has replaced it.
	// The dead letter that the first event names as deadLetterId, if any, was open when the statement began: it may
	// have been discarded, or retried, since the caller read it.
	GuardReplay Guard = "replay"
)

// lease is how long a claim holds. It covers the provider's timeout (30 s) and the process's own writes. If less than
// 31 s remain before the call, the worker releases the email.
const lease = pg.LeaseTime

// NoDeadlineSQL is the deadline of a mailing's email until its first attempt, which sets the real one. Before that, an email of
// a large or paused mailing may wait for days. Go's time cannot represent Postgres's infinity.
const NoDeadlineSQL = `now() + interval '10 years'`

// Transition moves one email to a status and writes its log, its events and, if it has failed for good, its dead letter
// in the same commit. Status changes by the dispatcher write no event and are not Transitions.
type Transition struct {
	ID    uuid.UUID
	Guard Guard
	// Token identifies the attempt. GuardClaim stores it as the row's claim, and GuardAttempt requires that claim. With
	// GuardReplay it identifies the replay, so that a repeated write is recognized.
	Token  uuid.UUID
	Status email.Status
	Events []email.Event

	// GiveWay means that the statement does not wait for a program's open transaction that is moving or cancelling the
	// email: the result is Locked. It is only for emails with an aggregate.
	GiveWay bool

	AddAttempts  int           // +1 counts an attempt, −1 undoes that
	AddThrottles int           // +1: a quota or an outage stopped the attempt, which is not counted
	Delay        time.Duration // next_at = now + Delay, if Status has a due time
	// Renew is the time to the new deadline that a GuardReplay sets, or a GuardClaim that is the first attempt of a mailing's
	// email. Other transitions set none. A replayed email of a mailing has none until its first attempt.
	Renew time.Duration
	// TaskWaits: with RETRY_SCHEDULED, the email's task stays on the queue until the email is due. Otherwise the
	// dispatcher enqueues a new task.
	TaskWaits bool

	OutcomeUnknown    bool // sticky; cleared by GuardFeedback only
	PossibleDuplicate bool // sticky

	ErrorCode, ErrorReason string
	SESMessageID           string
	Duration               time.Duration        // of the attempt
	Recipient              *recipient.Recipient // data about the recipient to store; CPFCNPJ comes from the outbox row, and an empty Email means To
	DeadLetter             bool
	// Company is set by callers that can do other work when the email is Locked. The transition then waits for no
	// locked recipient for a while after another email of the company did, and at most slotWait for a slot to be
	// written alone.
	Company uuid.UUID

	// skipLockedRecipient: the email is Locked if its recipient's row is.
	skipLockedRecipient bool
	events              []byte // Events as JSON
}

// encoded returns the transition with its events and texts encoded for the statement. The caller's goroutine calls it,
// and not the group's, so that an event that cannot be encoded does not fail the other transitions of the group.
func (t Transition) encoded() (Transition, error) {
	var err error
	if t.events, err = EncodeEvents(t.Events); err != nil {
		return t, err
	}
	t.ErrorCode, t.ErrorReason, t.SESMessageID = pgtext.WithoutNUL(t.ErrorCode), pgtext.WithoutNUL(t.ErrorReason), pgtext.WithoutNUL(t.SESMessageID)
	return t, nil
}

func encodeAll(ts []Transition) ([]Transition, error) {
	all := make([]Transition, len(ts))
	for i, t := range ts {
		var err error
		if all[i], err = t.encoded(); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// waits returns where the email waits for its due time: "outbox" for the dispatcher or another loop, "queue" with a
// task that runs then, or "" if its status has no due time and next_at stays unchanged.
func (t *Transition) waits() string {
	switch {
	case t.Status == email.RetryScheduled && t.TaskWaits:
		return "queue"
	case t.Status == email.Pending, t.Status == email.RetryScheduled, t.Status == email.OutcomeUnknown:
		return "outbox"
	}
	return ""
}

// recipient returns the recipient to write, or the zero Recipient if there is none.
func (t *Transition) recipient() recipient.Recipient {
	if t.Recipient == nil {
		return recipient.Recipient{}
	}
	return *t.Recipient
}

// skipCompany returns the transition's company if a locked recipient makes the email Locked, or uuid.Nil if the
// statement waits for the recipient.
func (t *Transition) skipCompany() uuid.UUID {
	if !t.skipLockedRecipient {
		return uuid.Nil
	}
	return t.Company
}

// Advanced is the result of a Transition.
type Advanced struct {
	Applied bool
	// Locked means that another transaction holds a row that the transition needs. Nothing was changed, and the caller
	// may apply the same transition again.
	Locked bool
	// Status is the email's status now; "" if there is no such email, or it is Locked.
	Status   email.Status
	Attempts int
	// Throttles is how many of these attempts a quota or an outage stopped.
	Throttles int
	// LeaseUntil is when the lease of a successful claim ends, by this process's clocks, the wall clock and the monotonic one.
	LeaseUntil time.Time
	// SameToken means that the row's claim is the transition's own. If Applied is false, an earlier try of the same
	// write succeeded, or another process has ended the attempt.
	SameToken bool
	// Rerun means that the connection broke and database/sql ran the statement again. The earlier run may have been
	// applied, or may still be running and hold the lock on the email. Only an Advancer sets it.
	Rerun bool
	// Erased means that the email's body was deleted by its retention: the email cannot be sent again.
	Erased bool
	// Replaced means that a replay was refused because another email of the same aggregate has replaced this one, which
	// stays cancelled.
	Replaced bool
	// Breaker is the state of the circuit breaker when the transition was made.
	Breaker breaker.Pass

	// CompanyID, RequestID and MailingID name the email in the log; only with Applied.
	CompanyID uuid.UUID
	RequestID string
	MailingID uuid.UUID // uuid.Nil = none
}

// advance calls run with the statement's arguments and returns the result of each transition.
func advance(ts []Transition, arguments []any, run func(rows any, columns []any) error) ([]Advanced, error) {
	start := time.Now()
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
	// The lease began on Postgres's clock after start on this process's clock. Counting from start, LeaseUntil is never
	// later than the real end.
	until := start.Add(lease)
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

// advanceScalars are the scalar parameters of advance.sql.
type advanceScalars struct {
	count       int // of the transitions
	first, last uuid.UUID
	wait        time.Duration
}

// isPlain reports whether advance_plain.sql can apply the transitions: it supports no GiveWay, recipient, dead letter or
// replay. Emails of mailings need none of these, because the expansion has written their recipients.
func isPlain(ts []Transition) bool {
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
		pg.One("create_from", "uuid", func(advanceScalars) any { return recipient.CreateFrom() }),
	}),
	Columns: slices.Concat(plainParameters.Columns, []pg.Column[Transition]{
		pg.Each("dead_letter", "bool", pg.Bools, func(t *Transition) bool { return t.DeadLetter }),
		pg.Each("recipient_id", "uuid", pg.OptionalUUIDs, func(t *Transition) uuid.UUID { return t.recipient().ID }),
		pg.Each("external_id", "text", pg.OptionalTexts, func(t *Transition) string { return t.recipient().ExternalID }),
		pg.Each("cpf_cnpj_hash", "text", pg.OptionalTexts, func(t *Transition) string { return t.recipient().CPFCNPJHash }),
		pg.Each("razao_social", "text", pg.OptionalTexts, func(t *Transition) string { return t.recipient().RazaoSocial }),
		pg.Each("nome", "text", pg.OptionalTexts, func(t *Transition) string { return t.recipient().Nome }),
		pg.Each("email", "text", pg.OptionalTexts, func(t *Transition) string { return t.recipient().Email }),
		pg.Each("give_way", "bool", pg.Bools, func(t *Transition) bool { return t.GiveWay }),
		pg.Each("skip_company", "uuid", pg.OptionalUUIDs, func(t *Transition) uuid.UUID { return t.skipCompany() }),
	}),
}
