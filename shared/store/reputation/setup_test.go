package reputation_test

import (
	"context"
	"testing"
	"time"

	"github.com/google/uuid"

	"email-gateway/shared/email"
	"email-gateway/shared/store/event"
	"email-gateway/shared/store/lane"
	"email-gateway/shared/store/reputation"
	"email-gateway/shared/store/storetest"
)

// bench is a database with one company.
type bench struct {
	storetest.Database
	rep     *reputation.Store
	feed    *event.Store
	company uuid.UUID
}

func newBench(t *testing.T) *bench {
	t.Helper()
	d := storetest.New(t)
	b := &bench{Database: d, feed: event.New(d.Store.DB()), company: d.Company(t)}
	b.rep = reputation.New(d.Store.DB(), func(ctx context.Context, company uuid.UUID) error {
		return d.Store.WakeLanes(ctx, []lane.Lanes{{Company: company}})
	})
	b.Run(t, `UPDATE reputation_guard SET counts_from = now() - interval '2 days'`)
	return b
}

// sent makes emails of the company that were sent so long ago, in one commit, and returns their ids.
func (b *bench) sent(t *testing.T, company uuid.UUID, n int, ago time.Duration) []uuid.UUID {
	t.Helper()
	ids := make([]uuid.UUID, n)
	texts := make([]string, n)
	for i := range ids {
		ids[i] = uuid.Must(uuid.NewV7())
		texts[i] = ids[i].String()
	}
	b.Run(t, `
		WITH log AS (
			INSERT INTO email_logs (outbox_id, company_id, recipient, subject, status, attempts, request_id, expires_at, created_at, sent_at, event_seq, last_event)
			SELECT id, $1, 'ana@example.com', 'Fatura', 'SENT', 1, 'r', now() + interval '1 day', now(), now() - $3 * interval '1 ms', 4, 'SENT'
			FROM unnest($2::uuid[]) id
		)
		INSERT INTO email_events (email_log_id, seq, previous, type, created_at) SELECT id, 4, 'SENT_ATTEMPT', 'SENT', now() FROM unnest($2::uuid[]) id`,
		company, textArray(texts), ago.Milliseconds())
	b.Run(t, `UPDATE event_feed SET created_at = now() - $2 * interval '1 ms' WHERE company_id = $1 AND position IS NULL`, company, ago.Milliseconds())
	for {
		assigned, err := b.feed.AssignPositions(t.Context(), 1000)
		if err != nil {
			t.Fatal(err)
		}
		if assigned == 0 {
			return ids
		}
	}
}

func textArray(texts []string) string {
	all := "{"
	for i, s := range texts {
		if i > 0 {
			all += ","
		}
		all += s
	}
	return all + "}"
}

const (
	hardBounce = `{"bounceType": "Permanent", "bounceSubType": "General"}`
	complaint  = `{"complaintFeedbackType": "abuse"}`
)

// feedback applies a notification about each email, as feedback.Store.RecordFeedback does at its end.
func (b *bench) feedback(t *testing.T, kind, payload string, ids ...uuid.UUID) {
	t.Helper()
	texts := make([]string, len(ids))
	for i, id := range ids {
		texts[i] = id.String()
	}
	b.Run(t, `
		INSERT INTO ses_events (sns_message_id, kind, outbox_id, payload, occurred_at)
		SELECT gen_random_uuid()::text, $1, id, $2, now() FROM unnest($3::uuid[]) id`, kind, payload, textArray(texts))
	b.Run(t, `UPDATE ses_events SET applied_at = now() WHERE applied_at IS NULL`)
}

func (b *bench) check(t *testing.T, company uuid.UUID) reputation.Checked {
	t.Helper()
	done, err := b.rep.Check(t.Context(), company)
	if err != nil {
		t.Fatal(err)
	}
	return done
}

func (b *bench) paused(t *testing.T, company uuid.UUID) bool {
	t.Helper()
	return storetest.Ask[bool](t, b.Database, `SELECT mailings_paused_at IS NOT NULL FROM companies WHERE id = $1`, company)
}

// events returns the company's events of the guard in the order of the feed.
func (b *bench) events(t *testing.T, company uuid.UUID) (types []email.EventType) {
	t.Helper()
	if _, err := b.feed.AssignPositions(t.Context(), 1000); err != nil {
		t.Fatal(err)
	}
	page, err := b.feed.Read(t.Context(), company, event.Cursor{}, event.OfTypes(event.CompanyTypes()), 100)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range page.Events {
		if !e.OfCompany {
			t.Errorf("%s is of an email", e.ID())
		}
		types = append(types, e.Type)
	}
	return types
}
