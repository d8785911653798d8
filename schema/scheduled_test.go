package schema_test

import (
	"slices"
	"testing"

	"email-gateway/schema"
)

// scheduledVersion is the migration that sets send_at of waiting emails.
const scheduledVersion = 26

// Emails that were scheduled before the migration get send_at; emails that are due, or were
// attempted, do not.
func TestScheduled_BeforeTheMigration(t *testing.T) {
	t.Parallel()
	db := migratedDatabase(t)
	for status(t, db)[scheduledVersion-1].Applied {
		if err := schema.Down(t.Context(), db); err != nil {
			t.Fatal(err)
		}
	}
	const scheduled, due, tried = "'01890000-0000-7000-8000-000000000001'", "'01890000-0000-7000-8000-000000000002'", "'01890000-0000-7000-8000-000000000003'"
	for id, next := range map[string]string{scheduled: "'2100-01-01Z'", due: "now()", tried: "'2100-01-01Z'"} {
		mail, log := legal()["email_outbox"], legal()["email_logs"]
		mail["id"], mail["next_at"], mail["expires_at"] = id, next, "'2100-01-02Z'"
		log["outbox_id"], log["event_seq"], log["last_event"] = id, "0", "NULL"
		if id == tried {
			log["event_seq"], log["last_event"] = "1", "'RECEIVED'"
		}
		for table, r := range map[string]row{"email_outbox": mail, "email_logs": log} {
			if err := insert(t, db, table, r); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := schema.Up(t.Context(), db); err != nil {
		t.Fatal(err)
	}
	got := query(t, db, `SELECT right(outbox_id::text, 1) || ' ' || coalesce((send_at AT TIME ZONE 'UTC')::date::text, 'none') FROM email_logs ORDER BY 1`)
	if want := []string{"1 2100-01-01", "2 none", "3 none"}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
