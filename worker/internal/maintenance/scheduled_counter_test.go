package maintenance_test

import (
	"log/slog"
	"testing"

	"github.com/google/uuid"

	"email-gateway/shared/store/storetest"
	"email-gateway/worker/internal/maintenance"
)

// Each company is counted, also after one whose count fails.
func TestScheduledCounter(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	var companies []uuid.UUID
	for range 3 {
		companies = append(companies, d.Company(t))
	}
	d.Run(t, `UPDATE quota_totals SET scheduled = 99000000`)
	// The number of the second one does not change.
	d.Run(t, `CREATE FUNCTION unwritable() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'unwritable'; END $$`)
	d.Run(t, `CREATE TRIGGER unwritable BEFORE UPDATE ON quota_totals FOR EACH ROW WHEN (new.company_id = '`+companies[1].String()+`') EXECUTE FUNCTION unwritable()`)
	run(t, maintenance.NewScheduledCounter(maintenance.ScheduledCounterParams{Log: slog.New(slog.DiscardHandler), Store: d.Store}))
	storetest.WaitFor(t, d, `SELECT count(*) = 2 FROM quota_totals WHERE scheduled = 0 AND company_id <> $1`, companies[1])
}
