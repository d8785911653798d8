package store_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"email-gateway/shared/store"
	"email-gateway/shared/store/mailing"
	"email-gateway/shared/store/storetest"
)

type control func(ctx context.Context, company, id uuid.UUID) (mailing.Mailing, error)

func controls(s *store.Store) map[string]control {
	return map[string]control{
		"start": s.StartMailing, "pause": s.PauseMailing, "resume": s.ResumeMailing, "cancel": s.CancelMailing, "retry": s.RetryFailedEntries,
	}
}

// Each control in each state: the status after it, with "+" for a new job; "" = rejected without a change.
func TestMailingControl_States(t *testing.T) {
	t.Parallel()
	for state, tt := range map[string]struct {
		set  string // what a mailing with one entry is made to be
		want map[string]string
	}{
		"QUEUED":     {`status = 'QUEUED'`, map[string]string{"pause": "PAUSED", "cancel": "CANCELLED"}},
		"PENDING":    {`status = 'PENDING', attempts = 1, error_message = 'x'`, map[string]string{"pause": "PAUSED", "cancel": "CANCELLED"}},
		"PROCESSING": {`status = 'PROCESSING', last_attempt = now()`, map[string]string{"pause": "PAUSED", "cancel": "CANCELLED"}},
		"SENDING":    {`status = 'SENDING', expanded_at = now()`, map[string]string{"pause": "PAUSED", "cancel": "CANCELLED"}},
		"SENDING, one failed": {
			`status = 'SENDING', expanded_at = now(), failed = 1, counted_at = now()`,
			map[string]string{"pause": "PAUSED", "cancel": "CANCELLED", "retry": "SENDING"},
		},
		"held":             {`status = 'PAUSED', generation = 0`, map[string]string{"start": "QUEUED+", "resume": "QUEUED+", "cancel": "CANCELLED"}},
		"PAUSED":           {`status = 'PAUSED', attempts = 1`, map[string]string{"resume": "QUEUED+", "cancel": "CANCELLED"}},
		"PAUSED, expanded": {`status = 'PAUSED', expanded_at = now()`, map[string]string{"resume": "SENDING", "cancel": "CANCELLED"}},
		"FAILED":           {`status = 'FAILED', attempts = 3, error_message = 'x'`, map[string]string{"resume": "QUEUED+", "cancel": "CANCELLED"}},
		"CANCELLED":        {`status = 'CANCELLED', failed = 1`, nil},
		"COMPLETED":        {`status = 'COMPLETED', sent = 1, completed_at = now()`, nil},
		"COMPLETED, one failed": {
			`status = 'COMPLETED', failed = 1, completed_at = now(), expanded_at = now()`, map[string]string{"retry": "SENDING"},
		},
		"COMPLETED, one unknown": {`status = 'COMPLETED', unknown = 1, completed_at = now()`, nil},
		"dry run":                {`status = 'COMPLETED', dry_run = true, failed = 1, completed_at = now()`, nil},
	} {
		t.Run(state, func(t *testing.T) {
			t.Parallel()
			d := storetest.New(t)
			company := d.Company(t)
			for name, control := range controls(d.Store) {
				id := d.Mailing(t, company, 1, nil)
				run(t, d, `UPDATE mailings SET settled_to = id, `+tt.set+` WHERE id = $1`, id)
				run(t, d, `UPDATE dispatch_lanes SET paused_at = now() WHERE mailing_id IN (SELECT id FROM mailings WHERE id = $1 AND status = 'PAUSED')`, id)
				run(t, d, `DELETE FROM email_outbox`)
				d.MailingEmail(t, id)
				before := ask[string](t, d, `SELECT m::text || l::text FROM mailings m JOIN dispatch_lanes l ON l.mailing_id = m.id WHERE m.id = $1`, id)
				m, err := control(t.Context(), company, id)
				after := ask[string](t, d, `SELECT m::text || l::text FROM mailings m JOIN dispatch_lanes l ON l.mailing_id = m.id WHERE m.id = $1`, id)
				want := tt.want[name]
				var refused *mailing.StateError
				if want == "" {
					if !errors.As(err, &refused) || string(refused.Status) != ask[string](t, d, `SELECT status FROM mailings WHERE id = $1`, id) || before != after {
						t.Errorf("%s: %v, changed: %v", name, err, before != after)
					}
					continue
				}
				got := string(m.Status)
				if ask[bool](t, d, `SELECT count(*) = 1 FROM email_outbox o JOIN mailings m ON o.payload ->> 'mailingId' = m.id::text
						AND (o.payload ->> 'generation')::int = m.generation AND o.payload ->> 'storageUrl' = m.storage_url WHERE m.id = $1`, id) {
					got += "+"
				}
				if err != nil || got != want {
					t.Errorf("%s: %s, %v; want %s", name, got, err, want)
				}
				checkControlled(t, d, name, id)
				if found, err := d.Store.FindMailing(t.Context(), company, id); err != nil || found.Status != m.Status || found.Generation != m.Generation {
					t.Errorf("%s: returned %+v, stored %+v, %v", name, m, found, err)
				}
			}
		})
	}
}

// checkControlled checks the columns that the programs read.
func checkControlled(t *testing.T, d storetest.Database, name string, id uuid.UUID) {
	t.Helper()
	want := map[string]string{
		"start":  `m.attempts = 0 AND m.error_message IS NULL AND m.last_attempt IS NULL AND l.paused_at IS NULL`,
		"resume": `m.attempts = 0 AND m.error_message IS NULL AND m.last_attempt IS NULL AND l.paused_at IS NULL`,
		"pause":  `m.last_attempt IS NULL AND l.paused_at IS NOT NULL`,
		"cancel": `m.settling = 'cancel' AND m.settled_to IS NULL AND m.counted_at IS NULL AND m.last_attempt IS NULL AND l.paused_at IS NOT NULL`,
		"retry":  `m.settling = 'retry-failed' AND m.settled_to IS NULL AND m.counted_at IS NULL AND m.completed_at IS NULL AND l.paused_at IS NULL`,
	}[name]
	if !ask[bool](t, d, `SELECT `+want+` FROM mailings m JOIN dispatch_lanes l ON l.mailing_id = m.id WHERE m.id = $1`, id) {
		t.Errorf("%s: not %s", name, want)
	}
}

// Failed entries whose emails have been deleted, or whose content has, cannot be sent again: nothing changes, so that the
// retention of the entries does not begin anew.
func TestRetryFailedEntries_EmailsDeleted(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	for name, change := range map[string]string{
		"emails":    `DELETE FROM email_outbox`,
		"contents":  `UPDATE email_outbox SET body_erased_at = now()`,
		"templates": `UPDATE mailings SET html = '', text_body = NULL`,
	} {
		id := d.Mailing(t, company, 1, nil)
		run(t, d, `DELETE FROM email_outbox`) // the job
		run(t, d, `UPDATE email_outbox SET status = 'FAILED', processed_at = now() WHERE id = $1`, d.MailingEmail(t, id))
		run(t, d, `UPDATE mailings SET status = 'COMPLETED', failed = 1, completed_at = now(), expanded_at = now() WHERE id = $1`, id)
		run(t, d, change)
		before := ask[string](t, d, `SELECT m::text FROM mailings m WHERE id = $1`, id)
		var refused *mailing.StateError
		if _, err := d.Store.RetryFailedEntries(t.Context(), company, id); !errors.As(err, &refused) || !strings.Contains(refused.Reason, "cannot be sent again") {
			t.Errorf("%s are deleted: %v", name, err)
		}
		if after := ask[string](t, d, `SELECT m::text FROM mailings m WHERE id = $1`, id); after != before {
			t.Errorf("%s are deleted: from %s to %s", name, before, after)
		}
	}
}

func TestMailingControl_JobIsDueWhenTheMailingIs(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	sendAt := time.Now().Add(time.Hour).UTC().Truncate(time.Millisecond)
	for _, at := range []time.Time{{}, sendAt, sendAt.Add(-2 * time.Hour)} {
		id := d.Mailing(t, company, 1, func(m *mailing.NewMailing) { m.Held, m.SendAt = true, at })
		if _, err := d.Store.StartMailing(t.Context(), company, id); err != nil {
			t.Fatal(err)
		}
		if !ask[bool](t, d, `SELECT CASE WHEN $2 THEN next_at = $3 ELSE next_at <= now() END FROM email_outbox WHERE payload ->> 'mailingId' = $1`, id.String(), at.Equal(sendAt), sendAt) {
			t.Errorf("send at %v: due at another time", at)
		}
	}
}

// A failed mailing has released its filename; if another mailing uses it, the failed one cannot be resumed.
func TestResumeMailing_FilenameTaken(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	named := func(m *mailing.NewMailing) { m.Filename = "natal.csv" }
	id := d.Mailing(t, company, 1, named)
	run(t, d, `UPDATE mailings SET status = 'FAILED'`)
	d.Mailing(t, company, 1, named)
	if _, err := d.Store.ResumeMailing(t.Context(), company, id); !errors.Is(err, store.ErrExists) {
		t.Errorf("got %v", err)
	}
	if m, err := d.Store.FindMailing(t.Context(), company, id); err != nil || m.Status != mailing.Failed || m.Generation != 1 {
		t.Errorf("%+v, %v", m, err)
	}
}

func TestMailingControl_OtherCompanies(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	id, other := d.Mailing(t, d.Company(t), 1, nil), d.Company(t)
	for name, control := range controls(d.Store) {
		if _, err := control(t.Context(), other, id); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
