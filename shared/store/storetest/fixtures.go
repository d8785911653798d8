package storetest

import (
	"crypto/sha256"
	"testing"
	"time"

	"github.com/google/uuid"

	"email-gateway/shared/email"
	"email-gateway/shared/htmlcheck"
	"email-gateway/shared/store/audit"
	"email-gateway/shared/store/outbox"
	"email-gateway/shared/store/tenant"
	"email-gateway/shared/waittest"
)

// Operator returns an operator for changes that a test needs.
func Operator() audit.Operator {
	return audit.Operator{Name: "test", Reason: "a test needs it"}
}

// Because returns an operator with this reason.
func Because(reason string) audit.Operator {
	return audit.Operator{Name: "ana", Reason: reason}
}

// Company creates a company that may send from the domain acme.example.
func (d Database) Company(tb testing.TB) uuid.UUID {
	tb.Helper()
	company := tenant.NewCompany{
		ID: uuid.Must(uuid.NewV7()), Name: "Acme " + uuid.NewString(), DefaultFrom: "Acme <billing@acme.example>",
	}
	if err := d.Store.CreateCompany(tb.Context(), Operator(), company); err != nil {
		tb.Fatalf("create company: %v", err)
	}
	return company.ID
}

// NewEmail returns a valid email of the company, ready to accept. change may be nil.
func NewEmail(company uuid.UUID, change func(*outbox.NewEmail)) outbox.NewEmail {
	id := uuid.Must(uuid.NewV7())
	html := "<p>Olá, sua fatura chegou.</p>"
	sum := sha256.Sum256([]byte(html))
	e := outbox.NewEmail{
		ID: id, CompanyID: company, RequestID: "req-" + id.String(),
		Job: email.SendJob{
			OutboxID: id.String(), CompanyID: company.String(), RequestID: "req-" + id.String(),
			To: "ana@example.com", Subject: "Sua fatura está disponível", HTMLRef: id.String(),
			Recipient: email.JobRecipient{ExternalID: "CUST-1", Nome: "Ana", Email: "ana@example.com"},
		},
		Sender: "Acme <billing@acme.example>", HTML: html, HTMLSHA256: sum[:], CheckerVersion: int(htmlcheck.Version),
		Priority: email.DefaultPriority, Delivery: email.AtLeastOnce,
		TTL: 24 * time.Hour, CreatedAt: time.Now().UTC().Truncate(time.Millisecond),
	}
	if change != nil {
		change(&e)
	}
	return e
}

// Accept writes a valid email of the company and returns its id. change may be nil.
func (d Database) Accept(tb testing.TB, company uuid.UUID, change func(*outbox.NewEmail)) uuid.UUID {
	tb.Helper()
	e := NewEmail(company, change)
	if err := d.Store.NewAccepter().Accept(tb.Context(), e); err != nil {
		tb.Fatalf("accept email: %v", err)
	}
	return e.ID
}

// Run executes a statement of the test.
func (d Database) Run(tb testing.TB, statement string, args ...any) {
	tb.Helper()
	if _, err := d.SQL.ExecContext(tb.Context(), statement, args...); err != nil {
		tb.Fatalf("%s: %v", statement, err)
	}
}

// Ask returns the single value of a query.
func Ask[V any](tb testing.TB, d Database, query string, args ...any) V {
	tb.Helper()
	var value V
	if err := d.SQL.QueryRowContext(tb.Context(), query, args...).Scan(&value); err != nil {
		tb.Fatalf("%s: %v", query, err)
	}
	return value
}

// WaitFor repeats the query until it returns true.
func WaitFor(tb testing.TB, d Database, query string, args ...any) {
	tb.Helper()
	waittest.Until(tb, query, func() bool { return Ask[bool](tb, d, query, args...) })
}

// WaitBlocked waits until n statements of this database wait for a lock.
func WaitBlocked(tb testing.TB, d Database, n int) {
	tb.Helper()
	WaitFor(tb, d, `SELECT count(*) = $1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`, n)
}
