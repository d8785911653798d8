package store_test

import (
	"errors"
	"strings"
	"testing"

	"email-gateway/shared/store"
	"email-gateway/shared/store/storetest"
)

// No error about a URL repeats the password in it, however the URL is broken.
func TestOpen_ErrorOmitsPassword(t *testing.T) {
	t.Parallel()
	for _, databaseURL := range []string{
		"postgres://u:hunter2@127.0.0.1:1/x?sslmode=disable",
		"postgres://u:hunter2/@127.0.0.1:1/x",
		"postgres://u:hun ter2@127.0.0.1:1/x",
		"postgres://u:hunter2%@127.0.0.1:1/x",
		"u:hunter2",
		"user=u password=hunter2",
		"mysql://u:hunter2@127.0.0.1:1/x",
	} {
		s, err := store.Open(t.Context(), databaseURL, store.Options{})
		if err == nil {
			s.Close()
			t.Errorf("%s: opened", databaseURL)
			continue
		}
		if strings.Contains(err.Error(), "hunter2") || strings.Contains(err.Error(), "ter2") {
			t.Errorf("%s: %v", databaseURL, err)
		}
	}
}

func TestErrNotMigrated(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	if _, err := d.SQL.ExecContext(t.Context(), `DROP TABLE process_status`); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Store.ProcessStatuses(t.Context()); !errors.Is(err, store.ErrNotMigrated) {
		t.Errorf("got %v, want ErrNotMigrated", err)
	}
}
