package httpapi_test

import (
	"context"
	"errors"
	"net/http"
	"testing"

	"github.com/google/uuid"

	"email-gateway/api/internal/httpapi"
	"email-gateway/shared/store"
	"email-gateway/shared/store/idempotency"
	"email-gateway/shared/store/lane"
	"email-gateway/shared/store/recipient"
)

// unsure is a database whose response to a recipient import is lost.
type unsure struct {
	httpapi.Store
	err       error
	there     bool  // the result of Exists
	confirmed error // the result of Confirm
}

func (u unsure) AcceptRecipients(context.Context, recipient.NewRecipients) error { return u.err }

func (u unsure) Exists(context.Context, uuid.UUID) (bool, error) { return u.there, nil }

func (u unsure) Confirm(context.Context) error { return u.confirmed }

func TestRecipients_AnswerLost(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		err    error
		there  bool
		status int
		code   string
	}{
		"the rows are stored":     {store.ErrUnknownOutcome, true, http.StatusAccepted, ""},
		"the rows are not stored": {store.ErrUnknownOutcome, false, http.StatusServiceUnavailable, "ACCEPT_UNKNOWN"},
		"no database":             {store.ErrUnavailable, false, http.StatusServiceUnavailable, "DATABASE_UNAVAILABLE"},
		"the company has no lane": {lane.ErrNone, false, http.StatusInternalServerError, "INTERNAL"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := start(t, func(p *httpapi.Params) { p.Store = unsure{p.Store, tt.err, tt.there, nil} })
			r := g.importRecipient(t, `{"email": "a@example.com"}`)
			if code, _ := r.json(t)["code"].(string); r.Status != tt.status || code != tt.code {
				t.Errorf("%d %s", r.Status, r.Body)
			}
			if retry := r.Header.Get("Retry-After"); (retry != "") != (tt.status == http.StatusServiceUnavailable) {
				t.Errorf("Retry-After %q", retry)
			}
		})
	}
}

// A request that a concurrent one with the same key blocks is a 409, however slow the database is, but not while no standby
// confirms commits.
func TestRecipients_BlockedByTheSameKey(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		confirmed error
		status    int
		code      string
	}{
		"the database answers": {nil, http.StatusConflict, "IDEMPOTENCY_IN_PROGRESS"},
		"too slowly":           {store.ErrUnavailable, http.StatusConflict, "IDEMPOTENCY_IN_PROGRESS"},
		"without a standby":    {errors.Join(store.ErrUnknownOutcome, store.ErrUnreplicated), http.StatusServiceUnavailable, "DATABASE_UNAVAILABLE"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := start(t, func(p *httpapi.Params) { p.Store = unsure{p.Store, idempotency.ErrInProgress, false, tt.confirmed} })
			r := g.do(t, call{Method: http.MethodPost, Path: "/v1/recipients", Body: `{"email": "a@example.com"}`, Header: map[string]string{"Idempotency-Key": "k"}})
			if r.Status != tt.status || r.problem(t).Code != tt.code || r.Header.Get("Retry-After") == "" {
				t.Errorf("%d %s", r.Status, r.Body)
			}
		})
	}
}

// Without RabbitMQ nothing is accepted; existing recipients can be read and deleted.
func TestRecipients_WithoutRabbitMQ(t *testing.T) {
	t.Parallel()
	g := start(t, func(p *httpapi.Params) { p.HasRabbitMQ = false })
	if r := g.importRecipient(t, `{"email": "a@example.com"}`); r.Status != http.StatusServiceUnavailable || r.problem(t).Code != "BULK_DISABLED" {
		t.Errorf("%d %s", r.Status, r.Body)
	}
	id := uuid.New()
	g.Run(t, `INSERT INTO recipients (id, company_id, email) VALUES ($1, $2, 'a@example.com')`, id, g.Company)
	if r := g.do(t, call{Path: "/v1/recipients/" + id.String()}); r.Status != http.StatusOK {
		t.Errorf("%d %s", r.Status, r.Body)
	}
	if r := g.do(t, call{Method: http.MethodDelete, Path: "/v1/recipients/" + id.String()}); r.Status != http.StatusNoContent || r.Body != "" {
		t.Errorf("%d %s", r.Status, r.Body)
	}
}
