package history

import (
	"testing"
	"time"

	"email-gateway/shared/store/storetest"
)

// Each month since then gets one partition, with the indexes and the fillfactor of the others.
func TestMakeMonths(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	conn, err := d.SQL.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	const shape = `SELECT count(*) FROM log_partitions p JOIN pg_class c ON c.relname = p.name
		WHERE p.log = $1 AND (SELECT count(*) FROM pg_index WHERE indrelid = c.oid) = (SELECT count(*) FROM pg_index WHERE indrelid = $1::regclass)
		AND c.reloptions = (SELECT reloptions FROM pg_class WHERE oid = ($1 || '_default')::regclass)`
	for _, table := range []table{outbox, logs, events} {
		var before, after int
		if err := conn.QueryRowContext(t.Context(), shape, table.name).Scan(&before); err != nil && table.name != outbox.name {
			t.Fatal(err)
		}
		year, month, _ := time.Now().UTC().Date()
		for range 2 {
			if err := table.makeMonths(t.Context(), conn, time.Date(year, month-2, 15, 0, 0, 0, 0, time.UTC)); err != nil {
				t.Fatal(err)
			}
		}
		if table.name == outbox.name {
			continue // not partitioned
		}
		if err := conn.QueryRowContext(t.Context(), shape, table.name).Scan(&after); err != nil || after != before+2 {
			t.Errorf("%s: %d months before, %d after, %v", table.name, before, after, err)
		}
	}
}
