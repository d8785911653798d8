package store_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/lib/pq"

	"email-gateway/shared/store/mailing"
	"email-gateway/shared/store/outbox"
	"email-gateway/shared/store/storetest"
)

// A step of a mailing reads a bounded number of bytes, however large its entries are.
func TestNextEntries_Bytes(t *testing.T) {
	t.Parallel()
	const n, fields = 600, 120
	d := storetest.New(t)
	company := d.Company(t)
	id := d.Mailing(t, company, n, nil)
	// The fields of each entry have 144 kB; a quarter of them is read.
	_, err := d.SQL.ExecContext(t.Context(), `UPDATE mailing_entries SET fields = ARRAY(SELECT i || repeat('é', 600) FROM generate_series(1, $2) i) WHERE mailing_id = $1`, id, fields)
	must(t, err)
	job, lock, err := d.Store.LockMailing(t.Context(), id, 1, time.Minute, time.Second)
	if err != nil || lock != mailing.Locked {
		t.Fatal(lock, err)
	}
	var all []int64
	for i := range fields {
		all = append(all, int64(i)+1)
	}
	for name, c := range map[string]struct {
		positions []int64
		pages     int
		begin     string
	}{"no field": {nil, 1, ""}, "two fields": {[]int64{2, 120}, 1, "2é 120é"}, "all fields": {all, 3, "1é"}} {
		job := job
		seen := map[uuid.UUID]bool{}
		pages := 0
		for last := false; !last; pages++ {
			page, err := d.Store.NextEntries(t.Context(), &job, c.positions, n+1)
			must(t, err)
			bytes := 0
			for _, e := range page.Entries {
				seen[e.ID] = true
				if len(e.Fields) != len(c.positions) {
					t.Fatalf("%s: %d fields", name, len(e.Fields))
				}
				for i, begin := range strings.Fields(c.begin) {
					if !strings.HasPrefix(e.Fields[i], begin) {
						t.Fatalf("%s: field %d is %s", name, i, e.Fields[i])
					}
				}
				for _, field := range e.Fields {
					bytes += len(field)
				}
			}
			if bytes > 32<<20 {
				t.Errorf("%s: a step reads %d bytes", name, bytes)
			}
			if last = page.Last; !last && len(page.Entries) == 0 {
				t.Fatalf("%s: a step reads nothing", name)
			}
			if len(page.Entries) > 0 {
				job.ExpandedTo = page.Entries[len(page.Entries)-1].ID
			}
		}
		if len(seen) != n || pages != c.pages {
			t.Errorf("%s: %d entries in %d steps", name, len(seen), pages)
		}
	}
}

// Fields of more than 64 KiB are not loaded with an email of a mailing: their size is, and they are read alone.
func TestLoad_LargeFields(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	id := d.Mailing(t, company, 1, nil)
	email := d.Accept(t, company, nil)
	loader := d.Store.NewLoader()
	for _, bytes := range []int{4, outbox.SmallBody, outbox.SmallBody + 4, 600_000} {
		want := []string{strings.Repeat("é", bytes/4), strings.Repeat("x", bytes/2)}
		_, err := d.SQL.ExecContext(t.Context(), `WITH entry AS (UPDATE mailing_entries SET id = $2, fields = $3 WHERE mailing_id = $1)
			UPDATE email_outbox SET lane_id = (SELECT id FROM dispatch_lanes WHERE mailing_id = $1) WHERE id = $2`, id, email, pq.Array(want))
		must(t, err)
		got, err := loader.Load(t.Context(), email)
		must(t, err)
		large, size := bytes > outbox.SmallBody, int64(0)
		if large {
			size = int64(bytes)
		}
		if got.LargeFields != size || (len(got.Fields) == 0) != large {
			t.Errorf("%d bytes: %d fields are loaded, LargeFields is %d", bytes, len(got.Fields), got.LargeFields)
		}
		if fields, err := loader.ReadFields(t.Context(), email); err != nil || !slices.Equal(fields, want) {
			t.Errorf("%d bytes: %d fields were read, %v", bytes, len(fields), err)
		}
	}
}
