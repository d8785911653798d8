package httpapi_test

import (
	"context"
	"net/http"
	"testing"

	"github.com/google/uuid"

	"email-gateway/api/internal/httpapi"
	"email-gateway/shared/store"
)

// unsure is a database whose response to a recipient import is lost.
type unsure struct {
	httpapi.Store
	err   error
	there bool // what it says when it is asked later
}

func (u unsure) AcceptRecipients(context.Context, store.NewRecipients) error { return u.err }

func (u unsure) Exists(context.Context, uuid.UUID) (bool, error) { return u.there, nil }

func TestRecipients_AnswerLost(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		err    error
		there  bool
		status int
		code   string
	}{
		"and the rows are there":  {store.ErrUnknownOutcome, true, http.StatusAccepted, ""},
		"and they are not":        {store.ErrUnknownOutcome, false, http.StatusServiceUnavailable, "ACCEPT_UNKNOWN"},
		"the database is away":    {store.ErrUnavailable, false, http.StatusServiceUnavailable, "DATABASE_UNAVAILABLE"},
		"the company has no lane": {store.ErrNoLane, false, http.StatusInternalServerError, "INTERNAL"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := start(t, func(p *httpapi.Params) { p.Store = unsure{p.Store, tt.err, tt.there} })
			r := g.hand(t, `{"email": "a@example.com"}`)
			if code, _ := r.json(t)["code"].(string); r.Status != tt.status || code != tt.code {
				t.Errorf("%d %s", r.Status, r.Body)
			}
			if retry := r.Header.Get("Retry-After"); (retry != "") != (tt.status == http.StatusServiceUnavailable) {
				t.Errorf("Retry-After %q", retry)
			}
		})
	}
}

// Without RabbitMQ nothing is accepted; existing recipients can be read and deleted.
func TestRecipients_WithoutRabbitMQ(t *testing.T) {
	t.Parallel()
	g := start(t, func(p *httpapi.Params) { p.HasRabbitMQ = false })
	if r := g.hand(t, `{"email": "a@example.com"}`); r.Status != http.StatusServiceUnavailable || r.problem(t).Code != "BULK_DISABLED" {
		t.Errorf("%d %s", r.Status, r.Body)
	}
	id := uuid.New()
	g.exec(t, `INSERT INTO recipients (id, company_id, email) VALUES ($1, $2, 'a@example.com')`, id, g.Company)
	if r := g.do(t, call{Path: "/v1/recipients/" + id.String()}); r.Status != http.StatusOK {
		t.Errorf("%d %s", r.Status, r.Body)
	}
	if r := g.do(t, call{Method: http.MethodDelete, Path: "/v1/recipients/" + id.String()}); r.Status != http.StatusNoContent || r.Body != "" {
		t.Errorf("%d %s", r.Status, r.Body)
	}
}
