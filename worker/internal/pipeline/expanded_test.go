package pipeline_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/lib/pq"
	"github.com/prometheus/client_golang/prometheus"

	"email-gateway/shared/email"
	"email-gateway/shared/htmlcheck"
	"email-gateway/shared/store/person"
	quotastore "email-gateway/shared/store/quota"
	"email-gateway/shared/store/recipient"
	"email-gateway/shared/store/storetest"
	"email-gateway/worker/internal/dbcheck"
	"email-gateway/worker/internal/mailing"
	"email-gateway/worker/internal/mx"
	"email-gateway/worker/internal/provider"
	"email-gateway/worker/internal/queue"
)

// anyDomain accepts every domain.
type anyDomain struct{}

func (anyDomain) Check(context.Context, string) (mx.Result, error) {
	return mx.Result{Valid: true}, nil
}

// people are the recipients of the entries that list inserts, in their order.
func (m *mailingBench) people() []uuid.UUID {
	return []uuid.UUID{
		recipient.ID(m.company, "C-1", storetest.HashOf('a'), "ana@example.com"),
		recipient.ID(m.company, "", storetest.HashOf('b'), "bia@example.com"),
		recipient.ID(m.company, "", "", "eva@example.com"),
	}
}

// list gives the mailing three entries, identified by an external id, by a number and by their address
// alone, and returns their ids. The mailing waits for its expansion.
func (m *mailingBench) list(t *testing.T) []uuid.UUID {
	t.Helper()
	ids := make([]uuid.UUID, 3)
	for i := range ids {
		ids[i] = uuid.Must(uuid.NewV7())
	}
	m.exec(t, `INSERT INTO mailing_entries (id, mailing_id, line_no, email, token, fields, nome, recipient_external_id, cpf_cnpj_hash, cpf_cnpj_enc) VALUES
			($1, $4, 2, 'ana@example.com', 'tok', '{Recife,""}', 'Ana', 'C-1', $5, 'ana''s'), ($2, $4, 3, 'bia@example.com', 'tok', '{Recife,""}', 'Bia', NULL, $6, 'bia''s'),
			($3, $4, 4, 'eva@example.com', 'tok', '{Recife,""}', 'Eva', NULL, NULL, NULL)`,
		ids[0], ids[1], ids[2], m.mailing, storetest.HashOf('a'), storetest.HashOf('b'))
	m.exec(t, `UPDATE mailings SET status = 'QUEUED', first_entry = $2, last_entry = $3, total_lines = 3, accepted = 3 WHERE id = $1`, m.mailing, ids[0], ids[2])
	return ids
}

// expand makes emails of the mailing's entries, as its job does.
func (m *mailingBench) expand(t *testing.T) {
	t.Helper()
	expander := mailing.New(mailing.Params{
		Log: slog.New(slog.DiscardHandler), Store: m.Store, Database: dbcheck.New(slog.New(slog.DiscardHandler), m.Store.Confirm),
		Domains: anyDomain{}, Metrics: mailing.NewMetrics(prometheus.NewRegistry()),
		UnsubscribeURL: func(_, _ uuid.UUID, address string) string { return "https://u.example/" + address },
		Lead:           50_000, StaleAfter: 30 * time.Second,
	})
	job := queue.Task{
		ID: uuid.NewString(), Queue: "mailing.jobs.process",
		Payload: fmt.Appendf(nil, `{"mailingId":"%s","storageUrl":"file:///a","generation":1}`, m.mailing),
	}
	if err := errors.Join(expander.Handle(t.Context(), []queue.Task{job})...); err != nil {
		t.Fatal(err)
	}
}

// send handles the emails and fails the test unless all of them are sent.
func (m *mailingBench) send(t *testing.T, ids ...uuid.UUID) {
	t.Helper()
	for _, id := range ids {
		if err := m.handle(t, id); err != nil {
			t.Errorf("handle: %v", err)
		}
		if got := m.find(t, id).Status; got != email.Sent {
			t.Errorf("status %s", got)
		}
	}
}

// stored returns the names of the company's recipients with their encrypted numbers.
func (m *mailingBench) stored(t *testing.T) string {
	t.Helper()
	return storetest.Ask[string](t, m.Database, `
SELECT coalesce(string_agg(concat_ws(' ', nome, convert_from(cpf_cnpj_enc, 'UTF8')), ', ' ORDER BY nome), '') FROM recipients WHERE company_id = $1`, m.company)
}

// usedRecipients returns how much of the quota of recipients the company uses.
func (m *mailingBench) usedRecipients(t *testing.T) int64 {
	t.Helper()
	all, err := m.Store.CompanyQuotas(t.Context(), m.company)
	if err != nil {
		t.Fatal(err)
	}
	for _, use := range all {
		if use.Quota == quotastore.Recipients {
			return use.Use
		}
	}
	t.Fatal("there is no quota of recipients")
	return 0
}

// The emails of a mailing that was expanded while the quota of recipients was used up are sent and make no recipients,
// also in a later try and when there is room again. The person is found by the number after it has been removed.
func TestExpanded_NoRoomForRecipients(t *testing.T) {
	t.Parallel()
	m := newMailingBench(t, `<p>{{nome}}</p>`, "", int(htmlcheck.Version))
	limit := func(most int64) {
		t.Helper()
		if err := m.Store.SetQuotas(t.Context(), storetest.Operator(), m.company, map[quotastore.Quota]*int64{quotastore.Recipients: &most}); err != nil {
			t.Fatal(err)
		}
	}
	limit(2)
	ids := m.list(t)
	m.expand(t)
	m.sender.fail(1, provider.Failure{Outcome: provider.Retry, Code: "SES_TIMEOUT"})
	if err := m.handle(t, ids[0]); m.find(t, ids[0]).Status != email.RetryScheduled {
		t.Fatalf("the first try: %s, %v", m.find(t, ids[0]).Status, err)
	}
	limit(100)
	m.send(t, ids...)
	if got := m.stored(t); got != "" || m.usedRecipients(t) != 0 {
		t.Errorf("recipients %q, %d in use", got, m.usedRecipients(t))
	}

	m.exec(t, `UPDATE mailing_entries SET cpf_cnpj_hash = NULL`)
	m.exec(t, `DELETE FROM email_outbox WHERE target = 'email:send'`)
	found, err := person.New(m.Store.DB()).Find(t.Context(), m.company, nil, "", storetest.HashOf('b'))
	if err != nil || strings.Join(found.Addresses, " ") != "bia@example.com" {
		t.Errorf("found by the number: %+v, %v", found, err)
	}
	var named pq.StringArray
	if err := m.SQL.QueryRowContext(t.Context(), `SELECT array_agg(recipient_id::text ORDER BY outbox_id) FROM email_logs`).Scan(&named); err != nil {
		t.Fatal(err)
	}
	if want := fmt.Sprint(m.people()); fmt.Sprint(named) != want {
		t.Errorf("the logs name %v, want %s", named, want)
	}
}

// The claim writes a recipient that the expansion did not write because another transaction was inserting it, with the
// encrypted number.
func TestExpanded_ClaimWritesRecipient(t *testing.T) {
	t.Parallel()
	m := newMailingBench(t, `<p>{{nome}}</p>`, "", int(htmlcheck.Version))
	ids := m.list(t)
	other, err := m.SQL.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := other.Rollback(); err != nil && !errors.Is(err, sql.ErrTxDone) {
			t.Error(err)
		}
	}()
	for _, id := range m.people() {
		if _, err := other.ExecContext(t.Context(), `INSERT INTO recipients (id, company_id, email) VALUES ($1, $2, 'other@example.com')`, id, m.company); err != nil {
			t.Fatal(err)
		}
	}
	m.expand(t)
	if err := other.Rollback(); err != nil {
		t.Fatal(err)
	}
	if got := m.stored(t); got != "" {
		t.Errorf("recipients before the claim: %q", got)
	}
	m.send(t, ids...)
	if got, want := m.stored(t), "Ana ana's, Bia bia's, Eva"; got != want || m.usedRecipients(t) != 3 {
		t.Errorf("recipients %q, want %q, %d in use", got, want, m.usedRecipients(t))
	}
}
