package outbox_test

import (
	"database/sql"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/lib/pq"
	"github.com/lib/pq/pqerror"

	"email-gateway/shared/outbox"
	"email-gateway/shared/rules"
)

// faulty checks that the error names these fields and no other.
func faulty(err error, fields ...string) bool {
	var invalid *outbox.InvalidError
	if !errors.As(err, &invalid) {
		return false
	}
	got := make([]string, len(invalid.Faults))
	for i, f := range invalid.Faults {
		got[i] = f.Field
	}
	return slices.Equal(slices.Sorted(slices.Values(got)), slices.Sorted(slices.Values(fields)))
}

// of makes the email of a body.
func of(t *testing.T, body map[string]any) (e outbox.Email) {
	t.Helper()
	encoded, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(encoded, &e); err != nil {
		t.Fatal(err)
	}
	return e
}

func sorted(faults []rules.Fault) string {
	names := make([]string, len(faults))
	for i, f := range faults {
		names[i] = f.Field + " " + f.Code
	}
	return strings.Join(slices.Compact(slices.Sorted(slices.Values(names))), ", ")
}

// refusal is the database's error for a body that a program passes to the function.
func (a *agenda) refusal(t *testing.T, body map[string]any, about outbox.Aggregate) string {
	t.Helper()
	return a.refusalUnder(t, "on", body, about)
}

// refusalUnder is refusal in a transaction with the given standard_conforming_strings.
func (a *agenda) refusalUnder(t *testing.T, conforming string, body map[string]any, about outbox.Aggregate) string {
	t.Helper()
	encoded, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	tx := a.begin(t)
	defer func() { _ = tx.Rollback() }()
	if _, err := tx.ExecContext(t.Context(), `SELECT set_config('standard_conforming_strings', $1, true)`, conforming); err != nil {
		t.Fatal(err)
	}
	var id uuid.UUID
	err = tx.QueryRowContext(t.Context(), `SELECT outbox_id FROM email_gateway_enqueue($1, $2, $3, $4, $5)`,
		a.company, about.Type, about.ID, about.EventType, string(encoded)).Scan(&id)
	var refused *pq.Error
	if !errors.As(err, &refused) {
		if err != nil {
			t.Fatal(err)
		}
		return ""
	}
	var faults []rules.Fault
	if err := json.Unmarshal([]byte(refused.Detail), &faults); err != nil || refused.Code != pqerror.InvalidParameterValue {
		t.Fatalf("%v, detail %q", refused, refused.Detail)
	}
	return sorted(faults)
}

// Package and function reject the same emails with the same fields and codes, and a rejection by the
// package leaves the transaction usable.
func TestRules(t *testing.T) {
	t.Parallel()
	a := newAgenda(t)
	about := interview("42", "REMINDER_24H")
	for name, tt := range wrongEmails() {
		tx := a.begin(t)
		_, err := a.reminders.Enqueue(t.Context(), tx, about, of(t, body(tt.change)))
		got := ""
		var invalid *outbox.InvalidError
		switch {
		case errors.As(err, &invalid):
			got = sorted(invalid.Faults)
		case err != nil:
			t.Errorf("%s: the package: %v", name, err)
			continue
		}
		if got != tt.want {
			t.Errorf("%s: the package reports %q, want %q", name, got, tt.want)
		}
		if _, err := tx.ExecContext(t.Context(), `INSERT INTO interviews (id, at) VALUES ('42', now())`); err != nil {
			t.Errorf("%s: the transaction was aborted: %v", name, err)
		}
		if err := tx.Rollback(); err != nil {
			t.Error(err)
		}
		if got := a.refusal(t, body(tt.change), about); got != tt.want {
			t.Errorf("%s: the function reports %q, want %q", name, got, tt.want)
		}
	}
}

// The functions reject the same in a session that interprets backslashes in literals.
func TestFunction_BackslashesInLiterals(t *testing.T) {
	t.Parallel()
	a := newAgenda(t)
	about := interview("42", "REMINDER_24H")
	for name, tt := range wrongEmails() {
		if got := a.refusalUnder(t, "off", body(tt.change), about); got != tt.want {
			t.Errorf("%s: the function reports %q, want %q", name, got, tt.want)
		}
	}
}

// Faults possible only in a document: wrong types, unknown fields, nulls.
func TestFunction_Shape(t *testing.T) {
	t.Parallel()
	a := newAgenda(t)
	about := interview("42", "REMINDER_24H")
	for path, value := range map[string]any{
		"to": 1, "subject": true, "html": map[string]any{}, "text": 1, "replyTo": 1, "from": []string{}, "cc": "ana@example.com", "bcc": map[string]any{},
		"headers": []string{}, "tags": "a", "recipient": "ana@example.com", "priority": "5", "delivery": false, "recipient.nome": 1,
	} {
		if got := a.refusal(t, body(field(path, value)), about); got != path+" WRONG_TYPE" {
			t.Errorf("%s of the wrong type: %q", path, got)
		}
		if path == "to" || path == "subject" || path == "html" || path == "recipient" {
			continue
		}
		if got := a.refusal(t, body(field(path, nil)), about); got != "" {
			t.Errorf("%s = null: %q", path, got)
		}
	}
	for path, value := range map[string]any{
		"sendAt": "2026-03-01T10:00:00Z", "aggregate": map[string]any{}, "attachments": []string{}, "CC": []string{}, "recipient.cpfCnpj": "52998224725",
	} {
		if got := a.refusal(t, body(field(path, value)), about); got != path+" UNKNOWN_FIELD" {
			t.Errorf("%s: %q", path, got)
		}
	}
	for name, value := range map[string]any{"cc[1]": []any{"a@b.cc", 1}, "tags[0]": []any{nil}} {
		if got := a.refusal(t, body(field(name[:strings.Index(name, "[")], value)), about); got != name+" WRONG_TYPE" {
			t.Errorf("%s: %q", name, got)
		}
	}
	if got := a.refusal(t, body(nil), outbox.Aggregate{Type: "a/b", ID: "..", EventType: strings.Repeat("a", 65)}); got !=
		"aggregate_id INVALID_NAME, aggregate_type INVALID_NAME, event_type INVALID_NAME" {
		t.Errorf("an aggregate with invalid names: %q", got)
	}
}

// Faults that only the database detects abort the transaction, like any statement's error.
func TestRules_Database(t *testing.T) {
	t.Parallel()
	a := newAgenda(t)
	for field, change := range map[string]func(*outbox.Email){
		"SENDER_NOT_ALLOWED":  func(e *outbox.Email) { e.From = "eva@elsewhere.example" },
		"RECIPIENT_NOT_FOUND": func(e *outbox.Email) { e.Recipient.RecipientID = uuid.NewString() },
	} {
		e := reminder()
		change(&e)
		tx := a.begin(t)
		_, err := a.reminders.Enqueue(t.Context(), tx, interview("42", "X"), e)
		var refused *pq.Error
		if !errors.As(err, &refused) || !strings.Contains(refused.Detail, field) {
			t.Errorf("%s: %v", field, err)
		}
		if _, err := tx.ExecContext(t.Context(), `SELECT 1`); err == nil {
			t.Errorf("%s: the transaction was not aborted", field)
		}
	}
}

// A recipient is found at its address in any letter case.
func TestFunction_RecipientInAnyCase(t *testing.T) {
	t.Parallel()
	a := newAgenda(t)
	e := reminder()
	e.Recipient.RecipientID = uuid.NewString()
	a.exec(t, `INSERT INTO recipients (id, company_id, email) VALUES ($1, $2, 'ANA@Example.com')`, e.Recipient.RecipientID, a.company)
	if _, err := a.reminders.Enqueue(t.Context(), a.begin(t), interview("42", "X"), e); err != nil {
		t.Error(err)
	}
}

// Faults that only the package detects.
func TestRules_Package(t *testing.T) {
	t.Parallel()
	a := newAgenda(t)
	for want, change := range map[string]func(*outbox.Email){
		"html INVALID_TEMPLATE":   func(e *outbox.Email) { e.HTML = "<script>alert(1)</script>" },
		"sendAt OUT_OF_RANGE":     func(e *outbox.Email) { e.SendAt = time.Now().AddDate(1, 0, 2) },
		"requestId BAD_CHARACTER": func(e *outbox.Email) { e.RequestID = "ana@example.com" },
		"subject BAD_CHARACTER":   func(e *outbox.Email) { e.Subject = "a\xff" },
		"html BAD_CHARACTER":      func(e *outbox.Email) { e.HTML = "a\x00" },
		"from TOO_LONG":           func(e *outbox.Email) { e.From = strings.Repeat("名", 200) + " <billing@acme.example>" },
		"headers BAD_CHARACTER, headers.X-A INVALID_HEADER_VALUE": func(e *outbox.Email) { e.Headers = map[string]string{"X-A": "\xff"} },
	} {
		e := reminder()
		change(&e)
		_, err := a.reminders.Enqueue(t.Context(), a.begin(t), interview("42", "X"), e)
		var invalid *outbox.InvalidError
		if !errors.As(err, &invalid) || sorted(invalid.Faults) != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
	want := []string{"aggregate.eventType", "aggregate.id", "aggregate.type"}
	if _, err := a.reminders.Enqueue(t.Context(), a.begin(t), outbox.Aggregate{}, reminder()); !faulty(err, want...) {
		t.Errorf("an email without an aggregate: %v", err)
	}
}

// The function accepts the encoded form of every name that the package accepts.
func TestEnqueue_NameOfSender(t *testing.T) {
	t.Parallel()
	a := newAgenda(t)
	for i, name := range []string{`AC\\DC`, `AC\\DC São Paulo`, `Loja, \"Sul\"`, "名"} {
		e := reminder()
		e.From = `"` + name + `" <billing@acme.example>`
		if _, err := a.reminders.Enqueue(t.Context(), a.begin(t), interview(strconv.Itoa(i), "X"), e); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// The package does not change its arguments.
func TestEnqueue_DoesNotChangeArguments(t *testing.T) {
	t.Parallel()
	a := newAgenda(t)
	given := func() outbox.Email {
		e := reminder()
		e.CC, e.Headers, e.Tags = []string{"Eva@BÜCHER.example"}, map[string]string{"X-A": "1"}, []string{"a"}
		return e
	}
	e := given()
	done := inTx(t, a, func(tx *sql.Tx) (outbox.Enqueued, error) {
		return a.reminders.Enqueue(t.Context(), tx, interview("42", "X"), e)
	})
	if diff := cmp.Diff(given(), e); diff != "" {
		t.Error(diff)
	}
	var cc string
	if err := a.SQL.QueryRowContext(t.Context(), `SELECT payload -> 'cc' ->> 0 FROM email_outbox WHERE id = $1`, done.ID).Scan(&cc); err != nil || cc != "Eva@xn--bcher-kva.example" {
		t.Errorf("stored as %q, %v", cc, err)
	}
	if !maps.Equal(e.Headers, given().Headers) {
		t.Error("Enqueue has changed the headers")
	}
}

// The package and the function store the same for an email with blank fields, and with repeated
// addresses.
func TestEnqueue_BlankAndTwice(t *testing.T) {
	t.Parallel()
	a := newAgenda(t)
	full := body(func(e map[string]any) {
		e["to"], e["cc"], e["bcc"] = "ana@example.com", []string{"ANA@example.com", " ", "Eva@b.cc", "eva@B.CC"}, []string{"EVA@b.cc", "rui@b.cc"}
		e["tags"], e["headers"], e["html"], e["text"] = []string{"\u200b", "a"}, map[string]any{"X-A": "1", "X-B": "\u00a0"}, "\ufeff<p>Olá</p>", " \u200b"
		field("recipient.nome", "   ")(e)
		field("recipient.email", "ana@example.com")(e)
	})
	const stored = `SELECT concat_ws('|', payload ->> 'cc', payload ->> 'bcc', payload ->> 'tags', payload ->> 'headers', payload -> 'recipient' ->> 'nome', html, text_body)
		FROM email_outbox WHERE id = $1`
	const want = `["Eva@b.cc"]|["rui@b.cc"]|["a"]|{"X-A": "1"}|<p>Olá</p>`
	done := inTx(t, a, func(tx *sql.Tx) (outbox.Enqueued, error) {
		return a.reminders.Enqueue(t.Context(), tx, interview("42", "PACKAGE"), of(t, full))
	})
	var got string
	if err := a.SQL.QueryRowContext(t.Context(), stored, done.ID).Scan(&got); err != nil || got != want {
		t.Errorf("the package stores %s, %v", got, err)
	}
	encoded, err := json.Marshal(full)
	if err != nil {
		t.Fatal(err)
	}
	var id uuid.UUID
	err = a.SQL.QueryRowContext(t.Context(), `SELECT outbox_id FROM email_gateway_enqueue($1, 'interview', '42', 'FUNCTION', $2, NULL, '24 hours', ' ')`, a.company, string(encoded)).Scan(&id)
	if err != nil {
		t.Fatal(err)
	}
	if err := a.SQL.QueryRowContext(t.Context(), stored, id).Scan(&got); err != nil || got != want {
		t.Errorf("the function stores %s, %v", got, err)
	}
}
