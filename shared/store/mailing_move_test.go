package store_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/uuid"

	"email-gateway/shared/store"
	"email-gateway/shared/store/mailing"
	"email-gateway/shared/store/storetest"
)

// A mailing that has not begun is moved, and has one job of its generation that is due at the new time. A mailing that has begun
// or ended is unchanged.
func TestMoveMailing_States(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	at := time.Now().Add(48 * time.Hour).UTC().Truncate(time.Millisecond)
	for state, tt := range map[string]struct {
		set        string
		want       mailing.Status // "" = refused
		generation int
	}{
		"QUEUED":              {`status = 'QUEUED'`, mailing.Queued, 2},
		"its job failed once": {`status = 'PENDING', attempts = 1, error_message = 'x'`, mailing.Queued, 2},
		"waits for a quota":   {`status = 'QUEUED', waiting_for = 'emails_per_day', waiting_until = now() + interval '1 hour'`, mailing.Queued, 2},
		"held":                {`status = 'PAUSED', generation = 0`, mailing.Paused, 0},
		"PAUSED":              {`status = 'PAUSED'`, mailing.Paused, 1},
		"begun":               {`status = 'QUEUED', processed_lines = 1`, "", 0},
		"PAUSED, begun":       {`status = 'PAUSED', processed_lines = 1`, "", 0},
		"PROCESSING":          {`status = 'PROCESSING', last_attempt = now()`, "", 0},
		"SENDING":             {`status = 'SENDING', expanded_at = now()`, "", 0},
		"CANCELLED":           {`status = 'CANCELLED'`, "", 0},
		"COMPLETED":           {`status = 'COMPLETED', sent = 1, completed_at = now()`, "", 0},
	} {
		id := d.Mailing(t, company, 1, nil)
		run(t, d, `UPDATE mailings SET `+tt.set+` WHERE id = $1`, id)
		whole := func() string {
			return ask[string](t, d, `SELECT m::text || o.next_at FROM mailings m JOIN email_outbox o ON o.payload ->> 'mailingId' = m.id::text WHERE m.id = $1`, id)
		}
		before := whole()
		m, err := d.Store.MoveMailing(t.Context(), company, id, at)
		var refused *mailing.StateError
		switch {
		case tt.want == "" && (!errors.As(err, &refused) || whole() != before):
			t.Errorf("%s: error %v, or the mailing was changed", state, err)
		case tt.want == "":
		case err != nil || m.Status != tt.want || m.Generation != tt.generation || m.SendAt == nil || !m.SendAt.Equal(at) || m.Attempts != 0 || m.WaitingFor != nil:
			t.Errorf("%s: %+v, %v", state, m, err)
		case tt.want == mailing.Queued:
			if !ask[bool](t, d, `SELECT count(*) = 1 AND bool_and(next_at = $2 AND (payload ->> 'generation')::int = 2 AND status = 'PENDING')
					FROM email_outbox WHERE payload ->> 'mailingId' = $1`, id.String(), at) {
				t.Errorf("%s: the mailing's job was not moved", state)
			}
		}
	}
	if _, err := d.Store.MoveMailing(t.Context(), d.Company(t), d.Mailing(t, company, 1, nil), at); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("of another company: %v", err)
	}
}

// A job that is being published, or has been, for the old time finds nothing to do, and the
// mailing has another one for the new time.
func TestMoveMailing_JobOnItsWay(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	for _, job := range []string{`next_at = now() + interval '10 s', enqueued_at = now()`, `status = 'PUBLISHED', processed_at = now()`} {
		id := d.Mailing(t, company, 1, nil)
		run(t, d, `UPDATE email_outbox SET `+job+` WHERE payload ->> 'mailingId' = $1`, id.String())
		at := time.Now().Add(time.Hour).Truncate(time.Millisecond)
		if _, err := d.Store.MoveMailing(t.Context(), company, id, at); err != nil {
			t.Fatal(err)
		}
		if !ask[bool](t, d, `SELECT count(*) = 1 FROM email_outbox WHERE payload ->> 'mailingId' = $1 AND payload ->> 'generation' = '2' AND next_at = $2`, id.String(), at) {
			t.Errorf("%s: no job for the new time", job)
		}
		if _, got, err := d.Store.LockMailing(t.Context(), id, 1, time.Minute, time.Second); err != nil || got != mailing.Obsolete {
			t.Errorf("%s: the old job: %v, %v", job, got, err)
		}
		// Moved to now, the same job is due, and takes the mailing.
		if m, err := d.Store.MoveMailing(t.Context(), company, id, time.Time{}); err != nil || m.SendAt == nil || time.Until(*m.SendAt) > 0 || m.Generation != 3 {
			t.Errorf("%+v, %v", m, err)
		}
		if !ask[bool](t, d, `SELECT count(*) = 1 FROM email_outbox WHERE payload ->> 'mailingId' = $1 AND payload ->> 'generation' = '3' AND next_at <= now()`, id.String()) {
			t.Errorf("%s: not due", job)
		}
		if _, got, err := d.Store.LockMailing(t.Context(), id, 3, time.Minute, time.Second); err != nil || got != mailing.Locked {
			t.Errorf("%s: %v, %v", job, got, err)
		}
	}
}

// A mailing that starts at the same moment is either moved or started, never both.
func TestMoveMailing_Race(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	for range 20 {
		id := d.Mailing(t, company, 1, nil)
		type outcome struct {
			moved bool
			err   error
		}
		moves := make(chan outcome)
		go func(ctx context.Context, id uuid.UUID) {
			_, err := d.Store.MoveMailing(ctx, company, id, time.Now().Add(time.Hour))
			var late *mailing.StateError
			if errors.As(err, &late) {
				moves <- outcome{false, nil}
				return
			}
			moves <- outcome{true, err}
		}(t.Context(), id)
		_, lock, err := d.Store.LockMailing(t.Context(), id, 1, time.Minute, time.Second)
		move := <-moves
		if err != nil || move.err != nil || move.moved == (lock == mailing.Locked) {
			t.Errorf("moved: %v, locked: %v; %v, %v", move.moved, lock == mailing.Locked, err, move.err)
		}
	}
}
