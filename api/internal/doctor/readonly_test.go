package doctor_test

import (
	"context"
	"errors"
	"testing"

	"email-gateway/api/internal/doctor"
	"email-gateway/shared/store"
)

// A database that refuses writes without being a standby is reported as such, and so is an api that sees it. Processes
// cannot report, which does not mean that none runs.
func TestExamine_ReadOnly(t *testing.T) {
	t.Parallel()
	d, p := healthy(t)
	exec(t, d, "TRUNCATE process_status")
	exec(t, d, "DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET default_transaction_read_only = on', current_database()); END $$")
	again, err := store.Open(t.Context(), d.URL, store.Options{MaxConns: 2})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(again.Close)
	if err := again.Confirm(t.Context()); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("confirm: %v, want ErrUnavailable", err)
	}
	p.Store = again
	wants(t, "read-only", doctor.Examine(t.Context(), p), "failure database: Postgres ", "skipped dispatcher: Unknown: the database accepts no writes",
		"skipped worker: ", "skipped redis: ", "skipped rabbitmq: ", "skipped ses: ")
}

// A commit that fails is reported, whether or not there are standbys.
func TestExamine_CommitFails(t *testing.T) {
	t.Parallel()
	d, p := healthy(t)
	p.Store = unconfirmed{d.Store}
	wants(t, "no commit", doctor.Examine(t.Context(), p), "failure replication: The check failed: disk full")
}

type unconfirmed struct{ *store.Store }

func (unconfirmed) Confirm(context.Context) error { return errors.New("disk full") }
