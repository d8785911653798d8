package store_test

import (
	"strings"
	"testing"

	"github.com/google/uuid"

	"email-gateway/shared/store"
	"email-gateway/shared/store/storetest"
)

// What is asked about a mailing goes by the index that its comment names, on tables
// with many mailings as on one with few.
func TestPlans_Mailings(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ mailings, entries int }{"one large": {1, 30000}, "many small": {60, 300}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := storetest.New(t)
			var company, id uuid.UUID
			for n := range tt.mailings {
				if n%10 == 0 {
					company = d.Company(t)
				}
				id = d.Mailing(t, company, tt.entries, nil)
			}
			run(t, d, `INSERT INTO mailing_rejects (mailing_id, line_no, code) SELECT id, n + 100000, 'UNREADABLE' FROM mailings, generate_series(1, 100) n`)
			run(t, d, `ANALYZE`)
			m, err := d.Store.FindMailing(t.Context(), company, id)
			if err != nil {
				t.Fatal(err)
			}
			db := direct(t, d)
			for statement, asked := range map[string]struct {
				index      string
				parameters []any
			}{
				store.EntriesSQL:        {"mailing_entries_pkey", []any{m.FirstEntry.UUID, uuid.Nil, m.LastEntry.UUID, id, "SENT", 50}},
				store.RejectsSQL:        {"mailing_rejects_pkey", []any{id, 0, 1000}},
				store.ListMailingsSQL:   {"mailings_company", []any{company, uuid.Max, 50}},
				store.FilenameHolderSQL: {"mailings_filename", []any{company, m.Filename}},
				store.CloseLaneSQL:      {"dispatch_lanes_company_id_queue_mailing_id_key", []any{company, "email:send:low", id}},
			} {
				plan := explain(t, db, statement, asked.parameters...)
				byIndex := strings.Contains(plan, " using "+asked.index+" ") || strings.Contains(plan, " on "+asked.index+" ")
				if !byIndex || statement == store.EntriesSQL && strings.Contains(plan, "Sort") {
					t.Errorf("not by %s:\n%s\n%s", asked.index, statement, plan)
				}
			}
		})
	}
}
