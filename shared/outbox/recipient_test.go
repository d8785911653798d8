package outbox_test

import (
	"encoding/json"
	"testing"

	"github.com/google/uuid"
)

// An email whose recipient has no address is stored with that of to, by the package and by the
// function: the worker, and programs of the previous release, read it there.
func TestEnqueue_RecipientWithoutAddress(t *testing.T) {
	t.Parallel()
	a := newAgenda(t)
	e := reminder()
	e.To, e.Recipient.Email = "Ana@EXAMPLE.com", ""
	tx := a.begin(t)
	byPackage, err := a.reminders.Enqueue(t.Context(), tx, interview("41", "REMINDER_24H"), e)
	if err != nil {
		t.Fatal(err)
	}
	body, err := json.Marshal(map[string]any{
		"to": "Ana@EXAMPLE.com", "subject": "Sua entrevista", "html": "<p>Olá!</p>", "recipient": map[string]any{"externalId": "CAND-42", "nome": "Ana"},
	})
	if err != nil {
		t.Fatal(err)
	}
	var byFunction uuid.UUID
	if err := tx.QueryRowContext(t.Context(), `SELECT outbox_id FROM email_gateway_enqueue($1, 'interview', '42', 'REMINDER_24H', $2)`, a.company, string(body)).Scan(&byFunction); err != nil {
		t.Fatal(err)
	}
	commit(t, tx)
	for _, id := range []uuid.UUID{byPackage.ID, byFunction} {
		var address string
		if err := a.SQL.QueryRowContext(t.Context(), `SELECT payload #>> '{recipient,email}' FROM email_outbox WHERE id = $1`, id).Scan(&address); err != nil || address != "Ana@EXAMPLE.com" {
			t.Errorf("%s: %q %v", id, address, err)
		}
	}
}
