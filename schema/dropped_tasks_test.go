package schema_test

import (
	"slices"
	"testing"

	"email-gateway/schema"
)

// droppedTasksVersion is the migration that adds mailing_marks.
const droppedTasksVersion = 27

// When the migration is reverted, marked mailings are still counted: the previous release reads
// only counted_at.
func TestDroppedTasks_DownKeepsMarks(t *testing.T) {
	t.Parallel()
	db := migratedDatabase(t)
	if err := insert(t, db, "companies", row{"id": companyID, "name": "'Acme'", "default_from": "'a@acme.example'"}); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"'01890000-0000-7000-8000-000000000001'", "'01890000-0000-7000-8000-000000000002'"} {
		mailing := legal()["mailings"]
		mailing["id"], mailing["counted_at"] = id, "now()"
		if err := insert(t, db, "mailings", mailing); err != nil {
			t.Fatal(err)
		}
	}
	if err := insert(t, db, "mailing_marks", row{"mailing_id": "'01890000-0000-7000-8000-000000000001'"}); err != nil {
		t.Fatal(err)
	}
	for status(t, db)[droppedTasksVersion-1].Applied {
		if err := schema.Down(t.Context(), db); err != nil {
			t.Fatal(err)
		}
	}
	got := query(t, db, `SELECT right(id::text, 1) || ' ' || (counted_at IS NULL) FROM mailings ORDER BY 1`)
	if want := []string{"1 true", "2 false"}; !slices.Equal(got, want) {
		t.Errorf("to be counted: %v, want %v", got, want)
	}
}

// A null in cc, which the rules report, does not remove addresses of bcc.
func TestPresent_NullInList(t *testing.T) {
	t.Parallel()
	db := migratedDatabase(t)
	got := query(t, db, `SELECT email_gateway_present('{"to": "a@acme.example", "cc": [null, "b@acme.example"], "bcc": ["B@acme.example", "c@acme.example"]}') ->> 'bcc'`)
	if want := []string{`["c@acme.example"]`}; !slices.Equal(got, want) {
		t.Errorf("bcc: %v, want %v", got, want)
	}
}
