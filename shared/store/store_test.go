package store_test

import (
	"errors"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/lib/pq"

	"email-gateway/shared/store"
	"email-gateway/shared/store/idempotency"
	"email-gateway/shared/store/internal/pg"
	"email-gateway/shared/store/mailing"
	"email-gateway/shared/store/outbox"
	"email-gateway/shared/store/storetest"
	"email-gateway/shared/store/tenant"
)

// run runs a statement of the test's own.
func run(tb testing.TB, d storetest.Database, statement string, args ...any) {
	tb.Helper()
	d.Run(tb, statement, args...)
}

// ask returns the one value that a query of the test's own yields.
func ask[V any](tb testing.TB, d storetest.Database, query string, args ...any) V {
	tb.Helper()
	return storetest.Ask[V](tb, d, query, args...)
}

func newCompany(name string, domains ...string) tenant.NewCompany {
	return tenant.NewCompany{
		ID: uuid.Must(uuid.NewV7()), Name: name, DefaultFrom: "Acme <billing@acme.example>", SenderDomains: domains,
	}
}

func open(t *testing.T, databaseURL string, o store.Options) *store.Store {
	t.Helper()
	s, err := store.Open(t.Context(), databaseURL, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// An error at the end of a statement or in COMMIT is returned, although rows may have been returned before.
func TestErrorsOfTheCommitAreReturned(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	run(t, d, `CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'too late' USING ERRCODE = '23514'; END $$`)
	for _, table := range []string{"email_outbox", "dispatch_lanes", "process_status"} {
		run(t, d, `CREATE CONSTRAINT TRIGGER refuse AFTER INSERT ON `+table+` DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION refuse()`)
	}
	for name, err := range map[string]error{
		"a prepared statement with rows": d.Store.NewAccepter().Accept(t.Context(), storetest.NewEmail(company, nil)),
		"a transaction":                  d.Store.CreateCompany(t.Context(), storetest.Operator(), newCompany("Late")),
		"a statement without rows":       d.Store.ReportStatus(t.Context(), "worker", "w1", time.Now(), nil),
	} {
		var refused *pq.Error
		if !errors.As(err, &refused) || !strings.Contains(refused.Message, "too late") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if n := ask[int](t, d, `SELECT count(*) FROM email_outbox`); n != 0 {
		t.Errorf("%d emails accepted", n)
	}
}

// A limit of the whole server, such as that of transaction ids, is an outage: no row of the statement is the cause.
func TestServerLimit(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	run(t, d, `CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'no more transaction ids' USING ERRCODE = '54000'; END $$`)
	for _, table := range []string{"email_outbox", "process_status", "companies"} {
		run(t, d, `CREATE TRIGGER refuse BEFORE INSERT ON `+table+` FOR EACH ROW EXECUTE FUNCTION refuse()`)
	}
	for name, err := range map[string]error{
		"a prepared statement with rows": d.Store.NewAccepter().Accept(t.Context(), storetest.NewEmail(company, nil)),
		"a transaction":                  d.Store.CreateCompany(t.Context(), storetest.Operator(), newCompany("Late")),
		"a statement without rows":       d.Store.ReportStatus(t.Context(), "worker", "w1", time.Now(), nil),
	} {
		if !errors.Is(err, store.ErrUnavailable) || errors.Is(err, store.ErrUnknownOutcome) {
			t.Errorf("%s: %v, want ErrUnavailable alone", name, err)
		}
	}
}

func TestPostgresAway(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	p := storetest.NewProxy(t, d)
	s := open(t, p.URL, store.Options{})
	p.Stop()
	p.CutAll()
	// Connections that broke while they were idle may be noticed by a read first.
	if _, err := s.Companies(t.Context()); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("read: %v", err)
	}
	_, advanceErr := s.Advance(t.Context(), outbox.Transition{ID: uuid.New()})
	_, loadErr := s.NewLoader().Load(t.Context(), uuid.New())
	_, dispatchErr := s.TakeDue(t.Context(), slot(), storetest.EvenTakes([]int64{1}, 1))
	for name, err := range map[string]error{
		"accept":     s.NewAccepter().Accept(t.Context(), storetest.NewEmail(company, nil)),
		"advance":    advanceErr,
		"load":       loadErr,
		"dispatch":   dispatchErr,
		"statement":  s.ReportStatus(t.Context(), "worker", "w1", time.Now(), nil),
		"company":    s.CreateCompany(t.Context(), storetest.Operator(), newCompany("Away")),
		"sign":       s.Ping(t.Context()),
		"no answers": s.Wake(t.Context()),
	} {
		if !errors.Is(err, store.ErrUnavailable) || errors.Is(err, store.ErrUnknownOutcome) {
			t.Errorf("%s: %v, want ErrUnavailable alone", name, err)
		}
	}
	if _, err := store.Open(t.Context(), p.URL, store.Options{}); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("open: %v", err)
	}
}

// All idle connections break when Postgres restarts. No write may fail for that.
func TestBrokenIdleConnectionsAreNoError(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	p := storetest.NewProxy(t, d)
	s := open(t, p.URL, store.Options{MaxConns: 4})
	accepter := s.NewAccepter()
	for range 5 {
		if err := accepter.Accept(t.Context(), storetest.NewEmail(company, nil)); err != nil {
			t.Fatal(err)
		}
		run(t, d, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()`)
	}
}

// So it is with an upload, which chooses its connection itself, however many are broken.
func TestBrokenIdleConnectionsAreNoError_Upload(t *testing.T) {
	t.Parallel()
	const conns = 4
	d := storetest.New(t)
	company := d.Company(t)
	s := open(t, d.URL, store.Options{MaxConns: conns})
	var under, done sync.WaitGroup // all run at the same time, each on a connection
	under.Add(conns)
	for range conns {
		done.Go(func() {
			lines := func(yield func(mailing.Line, error) bool) {
				under.Done()
				under.Wait()
				yield(mailing.Line{Entry: storetest.NewEntry(2)}, nil)
			}
			if _, _, err := s.IngestMailing(t.Context(), storetest.NewMailing(company, nil), lines); err != nil {
				t.Error(err)
			}
		})
	}
	done.Wait()
	if n := ask[int](t, d, `SELECT count(*) FILTER (WHERE pg_terminate_backend(pid, 10000)) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()`); n < conns {
		t.Fatalf("%d connections were broken", n)
	}
	if _, _, err := s.IngestMailing(t.Context(), storetest.NewMailing(company, nil), storetest.Lines(3)); err != nil {
		t.Error(err)
	}
}

// The response to a write is lost after its commit. The returned error must be right in each case, and the email must be stored
// once.
func TestAnswerLostAfterTheCommit(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		lose func(*storetest.Proxy)
		want error
	}{
		"the next connection works":    {func(p *storetest.Proxy) { p.Cut(1) }, nil},
		"every connection is lost":     {func(p *storetest.Proxy) { p.Cut(1000) }, store.ErrUnknownOutcome},
		"the next connection is reset": {(*storetest.Proxy).CutAndStop, store.ErrUnknownOutcome},
		"Postgres does not answer":     {nil, store.ErrUnknownOutcome}, // see below: needs the test's context
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := storetest.New(t)
			company := d.Company(t)
			p := storetest.NewProxy(t, d)
			s := open(t, p.URL, store.Options{StatementTimeout: time.Second})
			accepter := s.NewAccepter()
			start := time.Now()
			// The first one prepares the statement, so that the next answer is that of the insert.
			if err := accepter.Accept(t.Context(), storetest.NewEmail(company, nil)); err != nil {
				t.Fatal(err)
			}
			undisturbed := time.Since(start)
			if tt.lose != nil {
				tt.lose(p)
			} else {
				p.DropResponses(t)
			}
			e := storetest.NewEmail(company, func(e *outbox.NewEmail) {
				e.Idempotency = &idempotency.Key{Route: "r", Key: "k", BodySHA256: make([]byte, 32), Status: 202, Answer: []byte("{}"), Keep: time.Hour}
			})
			start = time.Now()
			err := accepter.Accept(t.Context(), e)
			if !errors.Is(err, tt.want) || errors.Is(err, store.ErrUnavailable) {
				t.Errorf("Accept returned %v, want %v", err, tt.want)
			}
			took := time.Since(start)
			t.Logf("Accept returned after %s, %s without a fault", took, undisturbed)
			if took > 2*time.Minute { // without a limit it would be TCP's
				t.Errorf("Accept returned after %s, want at most 2 min", took)
			}
			storetest.WaitFor(t, d, `SELECT count(*) = 1 FROM email_outbox WHERE id = $1`, e.ID)
			if exists, err := d.Store.Exists(t.Context(), e.ID); !exists || err != nil {
				t.Errorf("Exists = %v, %v, want true", exists, err)
			}
		})
	}
}

// If the response to a claim is lost, the repetition does not apply the claim a second time, and returns SameToken.
func TestAnswerOfAClaimLost(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	first, id, token := d.Accept(t, company, nil), d.Accept(t, company, nil), uuid.New()
	p := storetest.NewProxy(t, d)
	s := open(t, p.URL, store.Options{MaxConns: 1})
	if _, err := s.Advance(t.Context(), storetest.ClaimOf(company, first, uuid.New(), "CUST-1")); err != nil {
		t.Fatal(err)
	}
	p.Cut(1)
	got, err := s.Advance(t.Context(), storetest.ClaimOf(company, id, token, "CUST-1"))
	if err != nil || got.Applied || !got.SameToken || got.Status != "PROCESSING" || got.Attempts != 1 {
		t.Errorf("the repeated claim returned %+v, %v", got, err)
	}
}

// A pooler returns connections without prepared statements.
func TestPreparedStatementsGetLost(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	s := open(t, d.URL, store.Options{MaxConns: 1})
	accepter := s.NewAccepter()
	for range 5 {
		e := storetest.NewEmail(company, nil)
		if err := accepter.Accept(t.Context(), e); err != nil {
			t.Fatal(err)
		}
		if n := ask[int](t, d, `SELECT count(*) FROM email_outbox WHERE id = $1`, e.ID); n != 1 {
			t.Fatalf("%d rows", n)
		}
		if err := forgetPrepared(t.Context(), s); err != nil {
			t.Fatal(err)
		}
	}
}

func TestDataSource(t *testing.T) {
	t.Parallel()
	text, err := pg.DataSource("postgres://u:p@h:5432/x?sslmode=disable&binary_parameters=no&statement_timeout=7", store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	u, err := url.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]string{
		"sslmode": "disable", "statement_timeout": "7", // the URL's own word counts,
		"binary_parameters": "yes", // but columns are sent in binary
		"connect_timeout":   "5", "jit": "off",
		"idle_in_transaction_session_timeout": "", // the roles have it
	} {
		if got := u.Query().Get(key); got != want {
			t.Errorf("%s = %q, want %q", key, got, want)
		}
	}
}

// A statement that runs too long is ended, and wrote nothing.
func TestStatementTimeout(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	id := d.Accept(t, d.Company(t), nil)
	s := open(t, d.URL, store.Options{StatementTimeout: 100 * time.Millisecond})
	tx, err := d.SQL.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	if _, err := tx.ExecContext(t.Context(), `SELECT FROM email_outbox FOR UPDATE`); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Advance(t.Context(), storetest.CancelOf(id)); !errors.Is(err, store.ErrUnavailable) || errors.Is(err, store.ErrUnknownOutcome) {
		t.Errorf("got %v, want ErrUnavailable alone", err)
	}
}
