package webhook_test

import (
	"testing"

	"github.com/google/uuid"

	"email-gateway/shared/store/webhook"
)

// An endpoint whose row another transaction has locked does not keep the cursors of the others from moving,
// nor the caller waiting.
func TestCatchUp_LockedEndpoint(t *testing.T) {
	t.Parallel()
	d, s, sender := newStore(t)
	company := d.Company(t)
	var ids []uuid.UUID
	for range 3 {
		id := uuid.Must(uuid.NewV7())
		ids = append(ids, id)
		if _, err := s.Create(t.Context(), webhook.Endpoint{ID: id, CompanyID: company, URL: "https://erp.example/hook", Secret: []byte{1}}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := d.SQL.ExecContext(t.Context(), `UPDATE event_positions SET newest = 70`); err != nil {
		t.Fatal(err)
	}
	foreign, err := d.SQL.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = foreign.Rollback() }()
	if _, err := foreign.ExecContext(t.Context(), `SELECT FROM webhook_endpoints WHERE id = $1 FOR UPDATE`, ids[1]); err != nil {
		t.Fatal(err)
	}
	expect := func(when string, positions ...int64) {
		t.Helper()
		if err := sender.CatchUp(t.Context()); err != nil {
			t.Fatal(when, err)
		}
		for i, want := range positions {
			e, err := s.Find(t.Context(), company, ids[i])
			if err != nil || e.Position != want {
				t.Errorf("%s: endpoint %d: position %d, %v, want %d", when, i, e.Position, err, want)
			}
		}
	}
	expect("locked", 70, 0, 70)
	if err := foreign.Rollback(); err != nil {
		t.Fatal(err)
	}
	expect("free", 70, 70, 70)
}
