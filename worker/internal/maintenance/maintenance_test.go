package maintenance_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"

	"email-gateway/shared/email"
	"email-gateway/shared/service"
	"email-gateway/shared/store/storetest"
	"email-gateway/shared/waittest"
	"email-gateway/worker/internal/maintenance"
)

// timeout is how long a test waits for something that should happen soon.
const timeout = 3 * time.Minute

func TestExpirySweeper(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	start := time.Now()
	overdue := make(map[email.Status]uuid.UUID)
	for _, status := range []email.Status{email.Pending, email.Enqueued, email.RetryScheduled} {
		overdue[status] = d.Accept(t, company, nil)
		set(t, d, overdue[status], fmt.Sprintf(`status = '%s', expires_at = now() - interval '1 s'`, status))
	}
	inTime, working := d.Accept(t, company, nil), d.Accept(t, company, nil)
	set(t, d, working, `status = 'PROCESSING', claim_token = gen_random_uuid(), lease_until = now() + interval '1 min',
		expires_at = now() - interval '1 s'`)

	// Two sweepers as in two dispatchers: each email expires once.
	for range 2 {
		run(t, maintenance.NewExpirySweeper(maintenance.SweeperParams{
			Log: slog.New(slog.DiscardHandler), Store: d.Store, Advancer: d.Store.NewAdvancer(), Registry: prometheus.NewRegistry(),
		}))
	}
	for was, id := range overdue {
		waittest.Until(t, string(was)+" expired", func() bool { return status(t, d, id) == email.Expired })
		events, err := d.Store.Timeline(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		if len(events) != 1 || events[0].Type != email.EventExpired || !strings.Contains(string(events[0].Metadata), "expiresAt") {
			t.Errorf("%s: timeline %+v, want one EXPIRED with the deadline", was, events)
		}
		shown, err := d.Store.FindEmail(t.Context(), company, id)
		if err != nil {
			t.Fatal(err)
		}
		if shown.ErrorCode == nil || *shown.ErrorCode != email.CodeExpired {
			t.Errorf("%s: shown as %+v, want the code %s", was, shown, email.CodeExpired)
		}
	}
	// An email that becomes overdue while the sweeper runs.
	late := d.Accept(t, company, nil)
	set(t, d, late, `expires_at = now()`)
	waittest.Until(t, "the late one expired", func() bool { return status(t, d, late) == email.Expired })
	if got := status(t, d, inTime); got != email.Pending {
		t.Errorf("an email before its deadline: %s", got)
	}
	if got := status(t, d, working); got != email.Processing {
		t.Errorf("a claimed email: %s", got)
	}
	t.Logf("took %s", time.Since(start).Round(time.Millisecond))
}

// More than one batch, with one email that cannot be written.
func TestExpirySweeper_OneUnwritableEmail(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	like, broken := d.Accept(t, company, nil), d.Accept(t, company, nil)
	if _, err := d.SQL.ExecContext(t.Context(), `
		INSERT INTO email_outbox (id, company_id, lane_id, request_id, payload, sender, html, html_sha256, checker_version, expires_at)
		SELECT gen_random_uuid(), company_id, lane_id, request_id, payload, sender, html, html_sha256, checker_version, expires_at
		FROM email_outbox, generate_series(1, 1200) WHERE id = $1`, like); err != nil {
		t.Fatal(err)
	}
	// Without a subject its log cannot be written.
	set(t, d, broken, `payload = payload - 'subject'`)
	if _, err := d.SQL.ExecContext(t.Context(), `UPDATE email_outbox SET expires_at = now()`); err != nil {
		t.Fatal(err)
	}
	run(t, maintenance.NewExpirySweeper(maintenance.SweeperParams{
		Log: slog.New(slog.DiscardHandler), Store: d.Store, Advancer: d.Store.NewAdvancer(), Registry: prometheus.NewRegistry(),
	}))
	waittest.Until(t, "all but the broken one expired", func() bool {
		return number(t, d, `SELECT count(*) FROM email_outbox WHERE status = 'EXPIRED'`) == 1201
	})
	if got := status(t, d, broken); got != email.Pending {
		t.Errorf("the email that cannot be written: %s", got)
	}
}

// Another session has locked more overdue emails than a round lists. The others expire meanwhile,
// and the locked ones after the lock is gone.
func TestExpirySweeper_SkipsLockedEmails(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	like := d.Accept(t, company, nil)
	for _, due := range []string{"now() - interval '2 h'", "now() - interval '1 h'"} {
		if _, err := d.SQL.ExecContext(t.Context(), `
			INSERT INTO email_outbox (id, company_id, lane_id, request_id, payload, sender, html, html_sha256, checker_version, expires_at)
			SELECT gen_random_uuid(), company_id, lane_id, request_id, payload, sender, html, html_sha256, checker_version, `+due+`
			FROM email_outbox, generate_series(1, 600) WHERE id = $1`, like); err != nil {
			t.Fatal(err)
		}
	}
	tx, err := d.SQL.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	if _, err := tx.ExecContext(t.Context(), `SELECT FROM email_outbox WHERE expires_at < now() - interval '90 min' FOR UPDATE`); err != nil {
		t.Fatal(err)
	}
	run(t, maintenance.NewExpirySweeper(maintenance.SweeperParams{
		Log: slog.New(slog.DiscardHandler), Store: d.Store, Advancer: d.Store.NewAdvancer(), Registry: prometheus.NewRegistry(),
	}))
	waittest.Until(t, "the others expired", func() bool {
		return number(t, d, `SELECT count(*) FROM email_outbox WHERE status = 'EXPIRED'`) == 600
	})
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	waittest.Until(t, "all expired", func() bool {
		return number(t, d, `SELECT count(*) FROM email_outbox WHERE status = 'EXPIRED'`) == 1200
	})
}

// run runs the service until the test ends.
func run(t *testing.T, s service.Service) {
	t.Helper()
	if err := s.Start(t.Context(), func(err error) { t.Error(err) }); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), timeout)
		defer cancel()
		if err := s.Stop(ctx); err != nil {
			t.Errorf("stop: %v", err)
		}
	})
}

func set(t *testing.T, d storetest.Database, id uuid.UUID, assignments string) {
	t.Helper()
	if _, err := d.SQL.ExecContext(t.Context(), `UPDATE email_outbox SET `+assignments+` WHERE id = $1`, id); err != nil {
		t.Fatal(err)
	}
}

func status(t *testing.T, d storetest.Database, id uuid.UUID) (s email.Status) {
	t.Helper()
	if err := d.SQL.QueryRowContext(t.Context(), `SELECT status FROM email_outbox WHERE id = $1`, id).Scan(&s); err != nil {
		t.Fatal(err)
	}
	return s
}

func number(t *testing.T, d storetest.Database, query string) (n int) {
	t.Helper()
	if err := d.SQL.QueryRowContext(t.Context(), query).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}
