package doctor_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"email-gateway/api/internal/apikey"
	"email-gateway/api/internal/doctor"
	"email-gateway/schema"
	"email-gateway/shared/store"
	"email-gateway/shared/store/audit"
	"email-gateway/shared/store/deadletter"
	"email-gateway/shared/store/lane"
	"email-gateway/shared/store/retention"
	"email-gateway/shared/store/storetest"
	"email-gateway/shared/store/tenant"
	"email-gateway/shared/waittest"
)

// healthy sets up a gateway without problems.
func healthy(t *testing.T) (d storetest.Database, p doctor.Inputs) {
	t.Helper()
	d = storetest.New(t)
	if err := schema.Roles(t.Context(), d.SQL); err != nil {
		t.Fatal(err)
	}
	company := d.Company(t)
	if err := d.Store.AddSenderDomain(t.Context(), storetest.Operator(), company, "acme.example"); err != nil {
		t.Fatal(err)
	}
	giveKey(t, d, company)
	report(t, d, "dispatcher", "here-1", `{"redis":{"status":"connected"},"rabbitmq":{"status":"connected"},"storage":{"status":"connected"}}`)
	report(t, d, "worker", "here-2", `{"redis":{"status":"connected"},"ses":{"status":"connected"},"rabbitmq":{"status":"connected"},"consumers":4}`)
	newest, err := schema.Newest()
	if err != nil {
		t.Fatal(err)
	}
	secret := base64.StdEncoding.EncodeToString(make([]byte, 32))
	return d, doctor.Inputs{
		Environ: []string{
			"DATABASE_URL=" + d.URL, "CPF_CNPJ_KEYS=a:" + secret, "CPF_CNPJ_HASH_KEY=" + secret, "RABBITMQ_URL=amqp://127.0.0.1",
			"UNSUBSCRIBE_KEY=" + secret, "PUBLIC_URL=https://mail.acme.example", "SES_EVENTS_TOPICS=arn:aws:sns:us-east-1:123456789012:events",
		},
		Store: d.Store, Partitions: retention.New(d.Store.DB()), Newest: newest, Grants: schema.RolesFingerprint(),
		Health: func(context.Context) (h doctor.Health, err error) { h.Status = "ok"; return h, nil },
		Ping:   func(context.Context) error { return nil },
	}
}

func giveKey(t *testing.T, d storetest.Database, company uuid.UUID) {
	t.Helper()
	key, err := apikey.New("test")
	if err != nil {
		t.Fatal(err)
	}
	row := tenant.APIKey{KeyID: key.ID, CompanyID: company, Name: "x", Environment: "test", SecretSHA256: key.SecretSHA256(), Scopes: apikey.Scopes(), Burst: 1}
	if _, err := d.Store.CreateAPIKey(t.Context(), storetest.Operator(), row); err != nil {
		t.Fatal(err)
	}
}

// report stores the status of a process that has been running for an hour.
func report(t *testing.T, d storetest.Database, service, instance, details string) {
	t.Helper()
	reportAfter(t, d, time.Hour, service, instance, details)
}

func reportAfter(t *testing.T, d storetest.Database, uptime time.Duration, service, instance, details string) {
	t.Helper()
	if err := d.Store.ReportStatus(t.Context(), service, instance, time.Now().Add(-uptime), json.RawMessage(details)); err != nil {
		t.Fatal(err)
	}
}

func exec(t *testing.T, d storetest.Database, statement string) {
	t.Helper()
	if _, err := d.SQL.ExecContext(t.Context(), statement); err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
}

// lines formats the findings other than OK, one line each.
func lines(r doctor.Report) []string {
	var all []string
	for _, f := range r.Findings {
		if f.Status != doctor.OK {
			all = append(all, fmt.Sprintf("%s %s: %s", f.Status, f.Check, f.Text))
		}
	}
	return all
}

// wants fails the test unless the findings are exactly these, each given by its beginning,
// apart from the warning about the superuser role of the tests.
func wants(t *testing.T, what string, r doctor.Report, want ...string) {
	t.Helper()
	got := slices.DeleteFunc(lines(r), func(line string) bool { return strings.Contains(line, ", a superuser.") })
	fits := len(got) == len(want)
	for i := range min(len(got), len(want)) {
		fits = fits && strings.HasPrefix(got[i], want[i])
	}
	if !fits {
		t.Errorf("%s:\ngot  %s\nwant %s", what, strings.Join(got, "\n     "), strings.Join(want, "\n     "))
	}
	for _, f := range r.Findings {
		if (f.Status == doctor.Failure || f.Status == doctor.Warning) && f.Advice == "" {
			t.Errorf("%s: a finding has no advice: %s", what, f.Text)
		}
	}
}

func TestExamine_Healthy(t *testing.T) {
	t.Parallel()
	_, p := healthy(t)
	r := doctor.Examine(t.Context(), p)
	wants(t, "healthy", r)
	var checks []string
	for _, f := range r.Findings {
		checks = append(checks, f.Check)
	}
	want := "settings database roles clock migrations partitions companies domains dispatcher worker redis rabbitmq ses breaker lanes waiting deadLetters api storage"
	if r.Findings[0].Text != "The api's settings are valid. The settings of dispatcher and worker are not checked here: they validate them when they start." {
		t.Errorf("the finding does not name the program whose settings were checked: %s", r.Findings[0].Text)
	}
	if got := strings.Join(checks, " "); got != want || r.Status != doctor.Warning {
		t.Errorf("%s: %s, want %s", r.Status, got, want)
	}
}

func TestExamine_Database(t *testing.T) {
	t.Parallel()
	d, p := healthy(t)
	newer := p
	newer.Newest++
	wants(t, "an old schema", doctor.Examine(t.Context(), newer), fmt.Sprintf("failure migrations: The database is at migration %d, this release needs %d.", p.Newest, p.Newest+1))
	newer.Newest, newer.Grants = p.Newest-1, "roles.sql of an older release"
	wants(t, "an old release", doctor.Examine(t.Context(), newer), "warning migrations: The database is at migration ")
	for off, want := range map[time.Duration]string{
		2 * time.Second: "warning clock: This machine is 2s behind Postgres.", -2 * time.Second: "warning clock: This machine is 2s ahead of Postgres.",
		-time.Minute: "failure clock: This machine is 1m0s ahead of Postgres.",
	} {
		skewed := p
		skewed.Store = otherServer{d.Store, func(s *store.Server) { s.Now = s.Now.Add(off) }}
		var r doctor.Report
		waittest.Until(t, "a query so fast that its duration does not hide the difference: "+want, func() bool {
			r = doctor.Examine(t.Context(), skewed)
			return slices.Contains(lines(r), want)
		})
		wants(t, off.String(), r, want)
	}
	for want, change := range map[string]func(*store.Server){
		"failure database: Postgres 14.9 is too old.":                           func(s *store.Server) { s.Version = 140009 },
		"failure database: Postgres 17.2 is a standby":                          func(s *store.Server) { s.Version, s.Standby = 170002, true },
		"failure database: The encoding of the database is SQL_ASCII, not UTF8": func(s *store.Server) { s.Encoding = "SQL_ASCII" },
		"failure database: The locale of the database lowers ASCII letters":     func(s *store.Server) { s.LowersASCII = false },
		"failure database: The collation of the database has another version":   func(s *store.Server) { s.OtherCollation = true },
		"warning database: 90 of 100 connections are in use.":                   func(s *store.Server) { s.Connections, s.MaxConnections = 90, 100 },
		"warning roles: The programs have no separate":                          func(s *store.Server) { s.Roles = nil },
		"warning roles: The programs have no separate database roles":           func(s *store.Server) { s.Granted, s.Grants = false, "" },
		"warning database: Postgres does not terminate idle transactions of":    func(s *store.Server) { s.EndsIdle = false },
		"failure database: Commits of Postgres 15.0 may be lost":                func(s *store.Server) { s.Version, s.Durable = 150000, false },
		"failure database: Commits of gateway_api: false may be lost":           func(s *store.Server) { s.RoleCommits = []string{"gateway_api: false", "gateway_worker: on"} },
	} {
		other := p
		other.Store = otherServer{d.Store, change}
		wants(t, want, doctor.Examine(t.Context(), other), want)
	}
	far := p
	far.Environ = append(slices.Clone(p.Environ), "DATABASE_URL=postgres://u@db.acme.example/g")
	wants(t, "in clear", doctor.Examine(t.Context(), far), "warning database: The connection to the database is not encrypted.")

	exec(t, d, "COMMENT ON TABLE goose_db_version IS NULL") // `migrate roles` has not run
	exec(t, d, "UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'operator_audit_age'::regclass")
	exec(t, d, "DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET synchronous_commit = off', current_database()); END $$")
	again, err := store.Open(t.Context(), d.URL, store.Options{MaxConns: 2})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(again.Close)
	p.Store = again
	wants(t, "a neglected database", doctor.Examine(t.Context(), p), "failure database: Commits of Postgres", "failure roles: The grants are not those of this release",
		"failure migrations: An interrupted migration left invalid indexes: operator_audit_age.")
	exec(t, d, "DROP TABLE email_logs_"+time.Now().UTC().AddDate(0, 0, 1-time.Now().UTC().Day()).AddDate(0, 1, 0).Format("2006_01"))
	wants(t, "no partition for the next month", doctor.Examine(t.Context(), p), "failure database:", "failure roles:", "failure migrations:",
		"warning partitions: email_logs lacks a partition for this month or the next")
	exec(t, d, "DROP TABLE goose_db_version")
	wants(t, "no migration", doctor.Examine(t.Context(), p), "failure database:", "failure roles:", "failure migrations: The database has no tables yet.")

	p.Store, p.StoreErr = nil, errors.Join(store.ErrUnavailable, errors.New("connection refused"))
	wants(t, "no database", doctor.Examine(t.Context(), p), "failure database: The database is not usable: database unavailable: connection refused")
}

// otherServer replaces the properties of the database server.
type otherServer struct {
	*store.Store
	change func(*store.Server)
}

func (o otherServer) Server(ctx context.Context) (store.Server, error) {
	s, err := o.Store.Server(ctx)
	o.change(&s)
	return s, err
}

func TestExamine_Traffic(t *testing.T) {
	t.Parallel()
	d, p := healthy(t)
	s, ctx, by := d.Store, t.Context(), audit.Operator{Name: "ana", Reason: "complaints"}
	company, err := s.Companies(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.HoldLanes(ctx, by, company[0].ID, lane.Filter{}, true); err != nil {
		t.Fatal(err)
	}
	if _, err := s.HoldBreaker(ctx, by, true); err != nil {
		t.Fatal(err)
	}
	exec(t, d, "UPDATE dispatch_lanes SET paused_at = now() WHERE id = (SELECT min(id) FROM dispatch_lanes)")
	if err := s.DeadLetterTask(ctx, deadletter.Task{Target: "email:send", Reason: "INVALID_PAYLOAD", Payload: []byte("{")}); err != nil {
		t.Fatal(err)
	}
	wants(t, "held", doctor.Examine(ctx, p), "warning breaker: An operator has paused all sending since ", "warning lanes: ", "warning deadLetters: 1 dead letter is open")
	if _, err := s.ReleaseBreaker(ctx, by); err != nil {
		t.Fatal(err)
	}
	if _, err := s.ReleaseLanes(ctx, by, company[0].ID, lane.Filter{}, "", false); err != nil {
		t.Fatal(err)
	}
	exec(t, d, "UPDATE dead_letters SET resolved_at = now()")
	exec(t, d, "UPDATE provider_gate SET state = 'shut', reason = 'SES_ACCOUNT_SENDING_PAUSED', since = '2026-01-02 03:04:05Z'")
	waiting := d.Accept(t, company[0].ID, nil)
	exec(t, d, "UPDATE provider_gate SET state = 'open', reason = NULL")
	wants(t, "just due", doctor.Examine(ctx, p))
	exec(t, d, "UPDATE email_outbox SET next_at = now() - interval '31 s'")
	wants(t, "due for long", doctor.Examine(ctx, p), "warning waiting: Emails on email:send have been due for 3") // 31s, more on a busy machine
	exec(t, d, "UPDATE email_outbox SET next_at = now() - interval '301 s'")
	wants(t, "due for too long", doctor.Examine(ctx, p), "failure waiting: Emails on email:send have been due for 5m")
	taken := d.Accept(t, company[0].ID, nil)
	exec(t, d, "UPDATE email_outbox SET status = 'ENQUEUED', enqueued_at = now() WHERE id = '"+taken.String()+"'")
	wants(t, "due behind others", doctor.Examine(ctx, p), "warning waiting: The oldest due row of email:send has waited for 5m")
	exec(t, d, "UPDATE email_outbox SET enqueued_at = now() - interval '121 s' WHERE id = '"+taken.String()+"'")
	wants(t, "a full window that no worker serves", doctor.Examine(ctx, p), "failure waiting: Emails on email:send have been due for 5m")
	exec(t, d, "UPDATE email_outbox SET status = 'SENT', processed_at = now() WHERE id = '"+taken.String()+"'")
	if _, err := s.HoldBreaker(ctx, by, true); err != nil {
		t.Fatal(err)
	}
	exec(t, d, "UPDATE provider_gate SET state = 'shut', reason = 'SES_ACCOUNT_SENDING_PAUSED', since = '2026-01-02 03:04:05Z'")
	wants(t, "due while sending is stopped", doctor.Examine(ctx, p), "warning breaker: An operator has paused all sending since ",
		"failure breaker: The circuit breaker of the provider has been open since 2026-01-02 03:04:05Z: SES_ACCOUNT_SENDING_PAUSED.")
	exec(t, d, "UPDATE provider_gate SET state = 'open', reason = NULL")
	if _, err := s.ReleaseBreaker(ctx, by); err != nil {
		t.Fatal(err)
	}
	exec(t, d, "UPDATE email_outbox SET status = 'OUTCOME_UNKNOWN', claim_token = gen_random_uuid() WHERE id = '"+waiting.String()+"'")
	wants(t, "unknown", doctor.Examine(ctx, p), "warning outcomes: The outcome of 1 email is unknown")
	exec(t, d, "UPDATE email_outbox SET status = 'SENT', processed_at = now(), claim_token = NULL")
	exec(t, d, "UPDATE provider_gate SET state = 'shut', reason = 'SES_ACCOUNT_SENDING_PAUSED', since = '2026-01-02 03:04:05Z'")
	wants(t, "breaker open", doctor.Examine(ctx, p), "failure breaker: The circuit breaker of the provider has been open since 2026-01-02 03:04:05Z: SES_ACCOUNT_SENDING_PAUSED.")
}

// A mailing that failed or was paused and was forgotten keeps its data without a limit. One that was never started is
// cancelled by its age.
func TestExamine_StalledMailings(t *testing.T) {
	t.Parallel()
	d, p := healthy(t)
	companies, err := d.Store.Companies(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	company := companies[0].ID
	for range 3 {
		d.Mailing(t, company, 1, nil)
	}
	exec(t, d, "UPDATE mailings SET status = 'PAUSED', generation = 1, updated_at = now() - interval '13 days'")
	exec(t, d, "UPDATE mailings SET generation = 0, updated_at = now() - interval '15 days' WHERE id = (SELECT id FROM mailings ORDER BY id LIMIT 1)")
	wants(t, "paused for some days, and never started", doctor.Examine(t.Context(), p))
	exec(t, d, "UPDATE mailings SET updated_at = now() - interval '15 days' WHERE id = (SELECT id FROM mailings ORDER BY id DESC LIMIT 1)")
	wants(t, "forgotten", doctor.Examine(t.Context(), p), "warning mailings: Paused, failed, or of a company whose mailings are held, for more than two weeks")
	exec(t, d, "UPDATE mailings SET status = 'FAILED'")
	wants(t, "failed", doctor.Examine(t.Context(), p), "warning mailings: Paused, failed, or of a company whose mailings are held, for more than two weeks")
	exec(t, d, "UPDATE mailings SET status = 'SENDING'")
	if got := strings.Join(lines(doctor.Examine(t.Context(), p)), "\n"); strings.Contains(got, "warning mailings: ") {
		t.Error("in progress:", got)
	}
	exec(t, d, "UPDATE companies SET mailings_paused_at = now() - interval '15 days'")
	if got := strings.Join(lines(doctor.Examine(t.Context(), p)), "\n"); !strings.Contains(got, "warning mailings: Paused, failed, or of a company") {
		t.Error("the company's mailings are held:", got)
	}
}

func TestExamine_Tenants(t *testing.T) {
	t.Parallel()
	d, p := healthy(t)
	suspended, foreign := d.Company(t), d.Company(t)
	if err := d.Store.SuspendCompany(t.Context(), audit.Operator{Name: "ana", Reason: "unpaid"}, suspended); err != nil {
		t.Fatal(err)
	}
	wants(t, "odd companies", doctor.Examine(t.Context(), p), "warning companies: Suspended: Acme ", "warning companies: Without an active API key: Acme ",
		"warning domains: The default sender's domain is not registered for the company: Acme ",
		"warning domains: Companies share sender domains, and those for which one is registered may send from any address of it: acme.example (Acme ")
	giveKey(t, d, foreign)
	for _, ended := range []string{"revoked_at = now()", "expires_at = now(), revoked_at = now()"} { // as the store writes the two
		exec(t, d, "UPDATE api_keys SET "+ended)
		if got := lines(doctor.Examine(t.Context(), p)); !strings.Contains(strings.Join(got, "\n"), "Without an active API key") {
			t.Error(ended, got)
		}
	}
	exec(t, d, "TRUNCATE companies CASCADE")
	wants(t, "no companies", doctor.Examine(t.Context(), p), "warning companies: There are no companies: no emails can be sent.")
}

func TestExamine_Environment(t *testing.T) {
	t.Parallel()
	_, p := healthy(t)
	secret := base64.StdEncoding.EncodeToString(make([]byte, 32))
	for want, change := range map[string]string{
		"skipped settings: The api's settings are not set here (CPF_CNPJ_KEYS is missing); those of dispatcher and worker are never checked here.": "CPF_CNPJ_KEYS=",
		"failure settings: The api would not start: UNSUBSCRIBE_KEY: is required":                                                                  "UNSUBSCRIBE_KEY=",
		"failure settings: The api would not start: LOG_LEVEL: must be":                                                                            "LOG_LEVEL=loud",
		"warning settings: Without CPF_CNPJ_HASH_KEY":                                                                                              "CPF_CNPJ_HASH_KEY=",
		"warning settings: Unsubscribe links lead to http://127.0.0.1:8080, which other machines":                                                  "PUBLIC_URL=",
		"warning settings: Unsubscribe links begin with http://mail.acme.example.":                                                                 "PUBLIC_URL=http://mail.acme.example",
		"warning settings: The gateway gets no notifications of bounces and complaints":                                                            "SES_EVENTS_TOPICS=",
		"warning settings: Events signed by http://127.0.0.1:8005 are trusted, which is for":                                                       "SES_EVENTS_TRUSTED_URL=http://127.0.0.1:8005",
	} {
		other := p
		other.Environ = append(slices.Clone(p.Environ), change)
		r := doctor.Examine(t.Context(), other)
		wants(t, change, r, want)
		if text := fmt.Sprint(r); strings.Contains(text, secret) {
			t.Errorf("%s: a finding shows a key", change)
		}
	}
	away := p
	away.Health = func(context.Context) (doctor.Health, error) { return doctor.Health{}, errors.New("connection refused") }
	away.Ping = func(context.Context) error { return errors.New("no such bucket") }
	wants(t, "away", doctor.Examine(t.Context(), away), "failure api: The api does not answer: connection refused", "failure storage: Not reachable from here: no such bucket")
	away.Health, away.Ping = nil, nil
	wants(t, "API_URL not set", doctor.Examine(t.Context(), away), "skipped api: The address of the api is not known")
	for status, want := range map[string]string{
		"connected": "warning api: The api answers but reports degraded", "disconnected": "failure api: The api answers but cannot reach the database",
		"unreplicated": "failure api: The api answers but no synchronous standby confirms", "not_migrated": "failure api: The api answers but its database has no tables",
	} {
		p.Health = func(context.Context) (h doctor.Health, err error) {
			h.Status, h.Database.Status = "degraded", status
			return h, nil
		}
		wants(t, status, doctor.Examine(t.Context(), p), want)
	}
}
