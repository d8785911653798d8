package store_test

import (
	"errors"
	"testing"

	"github.com/google/uuid"

	"email-gateway/shared/email"
	"email-gateway/shared/store/breaker"
	"email-gateway/shared/store/storetest"
)

// No statement of the programs waits long for the row of the circuit breaker while another session holds it, and none
// writes then.
func TestBreaker_LockedRow(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		open string // the reason for which the breaker is open before; "" = closed
		run  func(d storetest.Database) error
		want error
	}{
		"open": {"", func(d storetest.Database) error {
			_, err := d.Store.OpenBreaker(t.Context(), breaker.Opening{Reason: "SES_TIMEOUT", By: "w", Attempt: uuid.New()})
			return err
		}, breaker.ErrLocked},
		"open by account": {"", func(d storetest.Database) error {
			_, err := d.Store.OpenBreakerByAccount(t.Context(), "SES_ACCOUNT_SENDING_PAUSED", "w")
			return err
		}, breaker.ErrLocked},
		"close": {"SES_TIMEOUT", func(d storetest.Database) error {
			_, _, err := d.Store.CloseBreaker(t.Context(), breaker.Closing{By: "w", Pass: breaker.Pass{Probe: true, Openings: 1}, Accepted: true})
			return err
		}, breaker.ErrLocked},
		"close by account": {"SES_ACCOUNT_SENDING_PAUSED", func(d storetest.Database) error {
			_, _, err := d.Store.CloseBreakerByAccount(t.Context(), "w")
			return err
		}, breaker.ErrLocked},
		"skip a probe": {"SES_TIMEOUT", func(d storetest.Database) error {
			return d.Store.SkipProbe(t.Context(), ask[uuid.UUID](t, d, `SELECT probe_id FROM provider_gate`))
		}, breaker.ErrLocked},
		"pick a probe": {"SES_TIMEOUT", func(d storetest.Database) error {
			_, found, err := d.Store.PickProbe(t.Context(), email.Queues(), probePause, true)
			if found {
				t.Error("a probe was picked")
			}
			return err
		}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := storetest.New(t)
			id := d.Accept(t, d.Company(t), nil)
			if c.open != "" {
				run(t, d, `UPDATE provider_gate SET state = 'shut', reason = $1, shuts = 1, probe_at = now() - interval '1 min', probe_id = $2`, c.open, id)
			}
			before := ask[string](t, d, `SELECT to_jsonb(g) FROM provider_gate g`)
			tx, err := d.SQL.BeginTx(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			defer tx.Rollback()
			if _, err := tx.ExecContext(t.Context(), `SELECT FROM provider_gate WHERE id = 1 FOR UPDATE`); err != nil {
				t.Fatal(err)
			}
			if err := c.run(d); !errors.Is(err, c.want) { // statement_timeout's, if it waited for the lock
				t.Errorf("%v, want %v", err, c.want)
			}
			if err := tx.Rollback(); err != nil {
				t.Fatal(err)
			}
			if now := ask[string](t, d, `SELECT to_jsonb(g) FROM provider_gate g`); now != before {
				t.Errorf("the circuit breaker changed from %s to %s", before, now)
			}
			if c.want == nil {
				return
			}
			if err := c.run(d); err != nil || ask[string](t, d, `SELECT to_jsonb(g) FROM provider_gate g`) == before {
				t.Errorf("without the lock: %v", err)
			}
		})
	}
}
