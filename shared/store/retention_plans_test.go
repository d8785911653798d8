package store_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/google/uuid"

	"email-gateway/shared/store"
	"email-gateway/shared/store/storetest"
)

// A step of a walk looks at the next rows along the index that its comment names, and
// finds what it picked of them by key, however large the tables are, and also when the
// planner has not heard of their size. So a walk costs as much as there are rows.
func TestRetentionPlans(t *testing.T) {
	t.Parallel()
	for _, analyzed := range []bool{false, true} {
		t.Run(map[bool]string{false: "just filled", true: "analyzed"}[analyzed], func(t *testing.T) {
			t.Parallel()
			d := storetest.New(t)
			company, _ := grow(t, d, 20000)
			fillMailings(t, d)
			run(t, d, `INSERT INTO recipients (id, company_id, email, cpf_cnpj_hash, updated_at)
				SELECT gen_random_uuid(), $1, 'user' || n || '@example.com', repeat('a', 64), now() - n * interval '1 minute' FROM generate_series(1, 50000) n`, company)
			ownHashes(t, d, company, 7)
			if analyzed {
				run(t, d, `ANALYZE`)
			}
			db := direct(t, d)
			db.SetMaxOpenConns(1) // the setting below is its connection's
			if _, err := db.ExecContext(t.Context(), strings.Replace(store.AlongKeySQL, "LOCAL ", "", 1)); err != nil {
				t.Fatal(err)
			}
			for name, tt := range map[string]struct {
				statement string
				indexes   []string
			}{
				"recipientHashes": {store.EraseRecipientHashesSQL, []string{"recipients_pkey"}},
				"entryHashes":     {store.EraseEntryHashesSQL, []string{"mailing_entries_pkey", "mailings_pkey"}},
				"entryValues":     {store.EraseEntryValuesSQL, []string{"mailing_entries_pkey", "mailings_pkey", "email_outbox_pkey"}},
				"outboxHashes":    {store.EraseOutboxHashesSQL, []string{"email_outbox_pkey", "recipient_intakes_pkey", "dead_letters_open", "mailing_entries_pkey"}},
			} {
				for _, age := range []any{nil, (10 * day).Milliseconds()} {
					plan := explain(t, db, tt.statement, uuid.Nil, age, 1000)
					for _, index := range tt.indexes {
						if !regexp.MustCompile(` using ` + index + ` `).MatchString(plan) {
							t.Errorf("%s does not use %s:\n%s", name, index, plan)
						}
					}
					// The next rows in the key's order, not all of them sorted.
					if sorts := regexp.MustCompile(`Bitmap|Sort Key: (recipients|mailing_entries|email_outbox)\.id`).FindString(plan); sorts != "" {
						t.Errorf("%s: %s:\n%s", name, sorts, plan)
					}
					if reads := regexp.MustCompile(`Seq Scan on (email_outbox|mailing_entries|mailings|recipients|recipient_intakes) `).FindString(plan); reads != "" {
						t.Errorf("%s: %s:\n%s", name, reads, plan)
					}
				}
			}
		})
	}
}
