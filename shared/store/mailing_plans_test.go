package store_test

import (
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/lib/pq"

	"email-gateway/shared/store"
	"email-gateway/shared/store/internal/pg"
	"email-gateway/shared/store/storetest"
)

// The statements of the mailing loops use the index that their comment names, also if a file has just been ingested and the
// planner has no statistics about it.
func TestMailingPlans(t *testing.T) {
	t.Parallel()
	for _, analyzed := range []bool{false, true} {
		t.Run(map[bool]string{false: "just filled", true: "analyzed"}[analyzed], func(t *testing.T) {
			t.Parallel()
			d := storetest.New(t)
			mailing, lane := storetest.FillMailings(t, d)
			if analyzed {
				run(t, d, `ANALYZE`)
			}
			db := storetest.Connect(t, d, store.Options{})
			db.SetMaxOpenConns(1) // the setting below is its connection's
			if _, err := db.ExecContext(t.Context(), strings.ReplaceAll(pg.AlongKeySQL, "LOCAL ", "")); err != nil {
				t.Fatal(err)
			}
			var first, last, middle uuid.UUID
			row := d.SQL.QueryRowContext(t.Context(), `SELECT first_entry, last_entry, expanded_to FROM mailings WHERE id = $1`, mailing)
			if err := row.Scan(&first, &last, &middle); err != nil {
				t.Fatal(err)
			}
			for name, tt := range map[string]struct {
				statement  string
				parameters []any
				indexes    string
			}{
				"nextEntries":  {written(t, "mailing.nextEntriesSQL"), []any{mailing, middle, last, middle, 1000, pq.Array([]int64{1}), 151}, "mailing_entries_pkey"},
				"entryRows":    {written(t, "mailingreport.entryRowsSQL"), []any{first, middle, last, mailing, "", 1000, uuid.New()}, "mailing_entries_pkey"},
				"rejectRows":   {written(t, "mailingreport.rejectRowsSQL"), []any{mailing, 1, "", 1000}, "mailing_rejects_pkey"},
				"toCancel":     {written(t, "mailing.toCancelSQL"), []any{mailing, middle, last, middle, 1000}, "mailing_entries_pkey"},
				"toRetry":      {written(t, "mailing.toRetrySQL"), []any{mailing, first, last, nil, 1000}, "mailing_entries_pkey"},
				"tally":        {written(t, "mailing.tallySQL"), []any{mailing, first, last}, "mailing_entries_pkey"},
				"moveJob":      {written(t, "mailing.moveJobSQL"), []any{mailing, nil, 2, uuid.New(), "mailing.jobs.process"}, "email_outbox_lane_claim"},
				"countLane":    {written(t, "mailing.countLaneSQL"), []any{lane, 50_000}, "email_outbox_lane_claim"},
				"openMailings": {written(t, "mailing.openMailingsSQL"), nil, "mailings_open"},
				"settling":     {written(t, "mailing.entryActionsSQL"), nil, "mailings_open"},
				"recover":      {written(t, "mailing.recoverSQL"), []any{pq.Array([]string{uuid.NewString()}), 30_000, 100_000}, "mailings_open email_outbox_lane_claim"},
				"discarded":    {written(t, "mailing.cancelDiscardedSQL"), []any{1000}, "mailings_failed"},
			} {
				plan := storetest.Explain(t, db, tt.statement, tt.parameters...)
				for index := range strings.FieldsSeq(tt.indexes) {
					if !strings.Contains(plan, " using "+index+" ") || strings.Contains(plan, "Sort Key: id") {
						t.Errorf("%s does not go along %s:\n%s", name, index, plan)
					}
				}
			}
		})
	}
}
