package store_test

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"email-gateway/shared/email"
	"email-gateway/shared/store/outbox"
	"email-gateway/shared/store/recipient"
	"email-gateway/shared/store/storetest"
)

const attempted = "RECEIVED VALIDATED SENT_ATTEMPT"

func TestAdvance_FromClaimToSent(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	id, token := d.Accept(t, company, func(e *outbox.NewEmail) { e.Job.Tags, e.CPFCNPJ = []string{"a", "b"}, []byte("enc") }), uuid.New()

	claim, err := d.Store.Advance(t.Context(), storetest.ClaimOf(company, id, token, "CUST-1"))
	left := time.Until(claim.LeaseUntil)
	claim.LeaseUntil = time.Time{}
	want := outbox.Advanced{Applied: true, Status: email.Processing, Attempts: 1, CompanyID: company, RequestID: claim.RequestID}
	if diff := cmp.Diff(want, claim); err != nil || diff != "" {
		t.Fatalf("%v %s", err, diff)
	}
	if left > time.Minute || left < 50*time.Second {
		t.Errorf("lease left: %s", left)
	}
	if r := readOutbox(t, d, id); r.Status != "PROCESSING" || !r.Leased || r.Final || r.CPFCNPJ != nil {
		t.Errorf("claimed: %+v", r)
	}
	storetest.Apply(t, d, storetest.SentOf(id, token))
	if r := readOutbox(t, d, id); r.Status != "SENT" || r.Leased || !r.Final || r.Attempts != 1 {
		t.Errorf("sent: %+v", r)
	}
	if got := storetest.Timeline(t, d, id); got != attempted+" SENT" {
		t.Error(got)
	}
	e, err := d.Store.FindEmail(t.Context(), company, id)
	if err != nil || e.Status != email.Sent || *e.SESMessageID != "ses-"+id.String() || *e.DurationMS != 80 || e.SentAt == nil || e.FailedAt != nil ||
		!slices.Equal(e.Tags, []string{"a", "b"}) || *e.RecipientID != recipient.ID(company, "CUST-1", "", "") || e.Attempts != 1 {
		t.Errorf("%+v, %v", e, err)
	}
	if got := ask[string](t, d, `SELECT previous || ' ' || (metadata ->> 'attempt') FROM email_events WHERE email_log_id = $1 AND type = 'SENT'`, id); got != "SENT_ATTEMPT 1" {
		t.Error(got)
	}
}

// Each guard lets through the statuses that it names and no others.
func TestAdvance_Guards(t *testing.T) {
	t.Parallel()
	waiting := []email.Status{email.Pending, email.Enqueued, email.RetryScheduled}
	d := storetest.New(t)
	company := d.Company(t)
	for _, status := range email.Statuses() {
		for name, tt := range map[string]struct {
			make func(id, token uuid.UUID) outbox.Transition
			from []email.Status
		}{
			"claim":    {func(id, token uuid.UUID) outbox.Transition { return storetest.ClaimOf(company, id, token, "C") }, waiting},
			"refuse":   {func(id, _ uuid.UUID) outbox.Transition { return refusalOf(id) }, waiting},
			"cancel":   {func(id, _ uuid.UUID) outbox.Transition { return storetest.CancelOf(id) }, waiting},
			"suppress": {func(id, _ uuid.UUID) outbox.Transition { return suppressOf(id) }, waiting},
			"expire":   {func(id, _ uuid.UUID) outbox.Transition { return expireOf(id) }, nil}, // its time has not come
			"replay":   {func(id, _ uuid.UUID) outbox.Transition { return storetest.ReplayOf(id) }, []email.Status{email.Failed, email.Expired, email.Cancelled}},
			"fail":     {storetest.FailedOf, []email.Status{email.Processing, email.OutcomeUnknown}},
			"release":  {releaseOf, []email.Status{email.Processing}},
			"retry":    {func(id, token uuid.UUID) outbox.Transition { return retryOf(id, token, 0) }, []email.Status{email.Processing, email.OutcomeUnknown}},
			"unheard-of": {func(id, token uuid.UUID) outbox.Transition {
				t := storetest.CancelOf(id)
				t.Guard = "unheard-of"
				return t
			}, nil},
		} {
			id, token := inStatus(t, d, company, status)
			before := readOutbox(t, d, id)
			story := storetest.Timeline(t, d, id)
			got, err := d.Store.Advance(t.Context(), tt.make(id, token))
			if want := slices.Contains(tt.from, status); err != nil || got.Applied != want {
				t.Errorf("%s from %s: %+v, %v", name, status, got, err)
			}
			if got.Applied {
				continue
			}
			if got.Status != status {
				t.Errorf("%s from %s returned the status %s", name, status, got.Status)
			}
			before.NextIn, before.ExpiresIn = 0, 0
			after := readOutbox(t, d, id)
			after.NextIn, after.ExpiresIn = 0, 0
			if diff := cmp.Diff(before, after); diff != "" || storetest.Timeline(t, d, id) != story {
				t.Errorf("%s from %s was not applied, but has changed %s", name, status, diff)
			}
		}
	}
	if got, err := d.Store.Advance(t.Context(), storetest.CancelOf(uuid.New())); err != nil || got.Applied || got.Status != "" {
		t.Errorf("an email that does not exist: %+v, %v", got, err)
	}
}

// inStatus makes an email that got to the status in the way emails do, and returns
// its last token.
func inStatus(tb testing.TB, d storetest.Database, company uuid.UUID, status email.Status) (id, token uuid.UUID) {
	tb.Helper()
	id, token = d.Accept(tb, company, nil), uuid.New()
	claim := storetest.ClaimOf(company, id, token, "C")
	switch status {
	case email.Pending:
	case email.Enqueued:
		run(tb, d, `UPDATE email_outbox SET status = 'ENQUEUED', enqueued_at = now() WHERE id = $1`, id)
	case email.Processing:
		storetest.Apply(tb, d, claim)
	case email.RetryScheduled:
		storetest.Apply(tb, d, claim, retryOf(id, token, 0))
	case email.OutcomeUnknown:
		storetest.Apply(tb, d, claim, storetest.EndOf(id, token, email.OutcomeUnknown, storetest.Event(email.EventOutcomeUnknown, nil)))
	case email.Sent:
		storetest.Apply(tb, d, claim, storetest.SentOf(id, token))
	case email.Failed:
		storetest.Apply(tb, d, claim, storetest.FailedOf(id, token))
	case email.Expired:
		run(tb, d, `UPDATE email_outbox SET expires_at = now() WHERE id = $1`, id)
		storetest.Apply(tb, d, expireOf(id))
	case email.Cancelled:
		storetest.Apply(tb, d, storetest.CancelOf(id))
	case email.Suppressed:
		storetest.Apply(tb, d, suppressOf(id))
	}
	if got := readOutbox(tb, d, id).Status; got != string(status) {
		tb.Fatalf("got to %s, want %s", got, status)
	}
	return id, token
}

func TestAdvance_ClaimNeedsAnOpenLaneAndADueRow(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		change string
		want   bool
	}{
		"nothing in its way":     {`SELECT 1`, true},
		"due in half a second":   {`UPDATE email_outbox SET next_at = now() + interval '500 ms'`, true},
		"due in ten seconds":     {`UPDATE email_outbox SET next_at = now() + interval '10 s'`, false},
		"expired":                {`UPDATE email_outbox SET expires_at = now()`, false},
		"lane paused":            {`UPDATE dispatch_lanes SET paused_at = now()`, false},
		"lane parked":            {`UPDATE dispatch_lanes SET parked_until = now() + interval '1 min'`, false},
		"lane was parked":        {`UPDATE dispatch_lanes SET parked_until = now() - interval '1 ms'`, true},
		"another lane paused":    {`UPDATE dispatch_lanes SET paused_at = now() WHERE queue <> 'email:send'`, true},
		"company suspended":      {`UPDATE companies SET suspended_at = now()`, false},
		"lane gone":              {`DELETE FROM dispatch_lanes`, false},
		"not an email but a job": {`UPDATE email_outbox SET target = 'mailing.process'`, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := storetest.New(t)
			company := d.Company(t)
			id := d.Accept(t, company, nil)
			run(t, d, tt.change)
			for _, transition := range []outbox.Transition{storetest.ClaimOf(company, id, uuid.New(), "C"), refusalOf(id)} {
				got, err := d.Store.Advance(t.Context(), transition)
				if err != nil || got.Applied != tt.want {
					t.Errorf("to %s: %+v, %v", transition.Status, got, err)
				}
				if tt.want {
					return
				}
			}
		})
	}
}

// The result of an attempt is stored, whatever the lane's state is by then.
func TestAdvance_AttemptEndsInAClosedLane(t *testing.T) {
	t.Parallel()
	for _, change := range []string{
		`UPDATE dispatch_lanes SET paused_at = now()`, `UPDATE companies SET suspended_at = now()`, `DELETE FROM dispatch_lanes`,
		`UPDATE email_outbox SET expires_at = now()`, `UPDATE email_outbox SET lease_until = now() - interval '1 h'`,
	} {
		d := storetest.New(t)
		id, token := inStatus(t, d, d.Company(t), email.Processing)
		run(t, d, change)
		storetest.Apply(t, d, storetest.SentOf(id, token))
	}
}

// Texts of a provider may contain any bytes. The transition must be stored nevertheless.
func TestAdvance_StrangeTexts(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	id, token := inStatus(t, d, d.Company(t), email.Processing)
	strange := "a\x00b\xff\\u0000 \"c\""
	failed := storetest.FailedOf(id, token)
	failed.ErrorReason, failed.ErrorCode = strange, "X\x00"
	failed.Events[0].Metadata = map[string]any{"errorMessage": strange, "\x00key": "\x00"}
	storetest.Apply(t, d, failed)
	if got := ask[string](t, d, `SELECT error_code || error_reason FROM email_logs WHERE outbox_id = $1`, id); got != "Xab\uFFFD\\u0000 \"c\"" {
		t.Errorf("%q", got)
	}
	if got := ask[string](t, d, `SELECT (metadata ->> 'errorMessage') || (metadata ->> 'key') FROM email_events WHERE email_log_id = $1 AND seq = 4`, id); got != "ab\uFFFD\\u0000 \"c\"" {
		t.Errorf("%q", got)
	}
}

func TestAdvance_CountsAndWaits(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	id := d.Accept(t, company, func(e *outbox.NewEmail) { e.TTL = time.Hour })
	attempt := func(end func(token uuid.UUID) outbox.Transition) outboxRow {
		t.Helper()
		token := uuid.New()
		run(t, d, `UPDATE email_outbox SET next_at = now()`)
		storetest.Apply(t, d, storetest.ClaimOf(company, id, token, "C"), end(token))
		return readOutbox(t, d, id)
	}
	if r := attempt(func(token uuid.UUID) outbox.Transition { return retryOf(id, token, time.Minute) }); r.Attempts != 1 || r.Throttles != 0 || !about(r.NextIn, time.Minute) || r.LastError.String != "SES_UNAVAILABLE: 503" {
		t.Errorf("retry: %+v", r)
	}
	throttled := func(token uuid.UUID) outbox.Transition {
		throttled := retryOf(id, token, 2*time.Minute)
		throttled.AddThrottles = 1
		return throttled
	}
	if r := attempt(throttled); r.Attempts != 2 || r.Throttles != 1 || !about(r.NextIn, 2*time.Minute) {
		t.Errorf("throttled: %+v", r)
	}
	if r := attempt(func(token uuid.UUID) outbox.Transition { return releaseOf(id, token) }); r.Attempts != 2 || r.Throttles != 1 || r.Status != "PENDING" {
		t.Errorf("released: %+v", r)
	}
	unknown := func(token uuid.UUID) outbox.Transition {
		unknown := storetest.FailedOf(id, token)
		unknown.OutcomeUnknown = true
		return unknown
	}
	if r := attempt(unknown); !r.OutcomeUnknown || r.Duplicate || r.Attempts != 3 || !r.Final {
		t.Errorf("unknown: %+v", r)
	}
	storetest.Apply(t, d, storetest.ReplayOf(id))
	// A replay after an unknown outcome is marked as a possible duplicate, and has a new retry budget and deadline.
	if r := readOutbox(t, d, id); !r.OutcomeUnknown || !r.Duplicate || r.Attempts != 0 || r.Throttles != 0 || r.Final || !about(r.ExpiresIn, 24*time.Hour) || !about(r.NextIn, 0) {
		t.Errorf("replayed: %+v", r)
	}
}

// A replay sends no email before the time that it is scheduled for, however often it was tried before it was moved there.
func TestAdvance_ReplayKeepsSendAt(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	at := time.Now().Add(48 * time.Hour).Truncate(time.Second)
	for name, prepare := range map[string]func(id uuid.UUID){
		"scheduled": func(id uuid.UUID) { reschedule(t, d, company, id, at) },
		"tried": func(id uuid.UUID) {
			token := uuid.New()
			storetest.Apply(t, d, storetest.ClaimOf(company, id, token, "C"), retryOf(id, token, time.Minute))
			reschedule(t, d, company, id, at)
		},
		"cancelled before": func(id uuid.UUID) {
			reschedule(t, d, company, id, at)
			storetest.Apply(t, d, storetest.CancelOf(id), storetest.ReplayOf(id))
		},
	} {
		id := d.Accept(t, company, nil)
		prepare(id)
		storetest.Apply(t, d, storetest.CancelOf(id), storetest.ReplayOf(id))
		if !ask[bool](t, d, `SELECT next_at = $2 AND expires_at = next_at + interval '24 hours' FROM email_outbox WHERE id = $1`, id, at) {
			t.Errorf("%s: the replay has moved the email from its time", name)
		}
	}
}

func TestAdvance_DeadLetters(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	id, token := inStatus(t, d, company, email.Processing)
	open := `SELECT count(*) FROM dead_letters WHERE outbox_id = $1 AND resolved_at IS NULL`
	for round := range 2 {
		storetest.Apply(t, d, storetest.FailedOf(id, token))
		if n := ask[int](t, d, open, id); n != 1 {
			t.Errorf("round %d: %d open dead letters", round, n)
		}
		storetest.Apply(t, d, storetest.ReplayOf(id))
		if n := ask[int](t, d, open, id); n != 0 {
			t.Errorf("round %d: %d open dead letters after the replay", round, n)
		}
		token = uuid.New()
		storetest.Apply(t, d, storetest.ClaimOf(company, id, token, "C"))
	}
	got := ask[string](t, d, `SELECT concat_ws(' ', company_id = $2, target, email, reason, attempts, last_error, payload ->> 'outboxId' = outbox_id::text) FROM dead_letters WHERE outbox_id = $1 LIMIT 1`, id, company)
	if want := "t email:send ana@example.com SES_REJECTED 1 no such mailbox t"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
