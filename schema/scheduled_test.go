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

// When 00060_sent_first.sql is reverted, a timeline that begins with SENT stays, and the next one is refused.
func TestSentFirst_DownKeepsTimelines(t *testing.T) {
	t.Parallel()
	db := migratedDatabase(t)
	first := row{"seq": "1", "previous": "NULL", "type": "'SENT'", "email_log_id": "gen_random_uuid()", "created_at": "now()"}
	if err := insert(t, db, "email_events", first); err != nil {
		t.Fatal(err)
	}
	if err := schema.MoveTo(t.Context(), db, 59); err != nil {
		t.Fatal(err)
	}
	if got := refusedBy(t, insert(t, db, "email_events", first)); got != "email_events_path" {
		t.Errorf("refused by %q", got)
	}
	if err := schema.Up(t.Context(), db); err != nil {
		t.Fatal(err)
	}
	if err := insert(t, db, "email_events", first); err != nil {
		t.Error(err)
	}
	if got := query(t, db, `SELECT type FROM email_events`); len(got) != 2 {
		t.Errorf("events %v", got)
	}
}
