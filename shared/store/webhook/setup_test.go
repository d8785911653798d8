package webhook_test

import (
	"testing"
	"time"

	"github.com/google/uuid"

	"email-gateway/shared/store/storetest"
	"email-gateway/shared/store/webhook"
)

// disableAfter is longer than any test.
const disableAfter = 120 * time.Hour

func newStore(tb testing.TB) (storetest.Database, *webhook.Store, *webhook.SenderStore) {
	tb.Helper()
	d := storetest.New(tb)
	return d, webhook.New(d.Store.DB()), webhook.NewSenderStore(d.Store.DB())
}

// newEndpoint creates an endpoint of the company.
func newEndpoint(tb testing.TB, s *webhook.Store, company uuid.UUID) uuid.UUID {
	tb.Helper()
	id := uuid.Must(uuid.NewV7())
	if _, err := s.Create(tb.Context(), webhook.Endpoint{ID: id, CompanyID: company, URL: "https://erp.acme.example/hooks", Secret: []byte("first")}); err != nil {
		tb.Fatal(err)
	}
	return id
}

func find(tb testing.TB, s *webhook.Store, company, id uuid.UUID) webhook.Endpoint {
	tb.Helper()
	e, err := s.Find(tb.Context(), company, id)
	if err != nil {
		tb.Fatal(err)
	}
	return e
}

// take takes the lease of the endpoint for a minute.
func take(tb testing.TB, sender *webhook.SenderStore, endpoint uuid.UUID) webhook.Lease {
	tb.Helper()
	l := webhook.Lease{EndpointID: endpoint, Token: uuid.New()}
	if err := sender.Take(tb.Context(), l, time.Minute); err != nil {
		tb.Fatal(err)
	}
	return l
}

// failed is a delivery of a new event whose first attempt failed.
func failed(email uuid.UUID, position int64) webhook.Attempted {
	status, code, took := 500, "HTTP_500", 3
	return webhook.Attempted{Wait: time.Hour, Delivery: webhook.Delivery{
		EventID: uuid.NewString() + ".1", Type: "email.sent", Position: position, EmailID: &email, Status: webhook.Retrying, Attempts: 1,
		LastStatus: &status, LastError: &code, LastTookMS: &took,
	}}
}
