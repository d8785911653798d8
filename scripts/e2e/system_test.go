package e2e_test

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"email-gateway/scripts/local"
	"email-gateway/scripts/local/programs"
	"email-gateway/scripts/sessim"
	"email-gateway/shared/servertest"
	"email-gateway/shared/store"
	"email-gateway/shared/store/storetest"
	"email-gateway/shared/store/tenant"
)

// system is a complete gateway for one test: a database, a Redis server, the SES simulator inside the test and the
// three programs.
type system struct {
	t     *testing.T
	db    storetest.Database
	redis *servertest.Server // nil if env named a Redis
	ses   *sessim.Server
	sesAt string // host:port
	bin   string // where its programs are

	api, dispatcher, worker *program
	key                     string
	env                     map[string]string
}

// startSystem starts everything. env is passed to all three programs in addition to the defaults.
func startSystem(t *testing.T, env map[string]string) *system {
	t.Helper()
	return startSystemOn(t, storetest.New(t), env)
}

func startSystemOn(t *testing.T, db storetest.Database, env map[string]string) *system {
	t.Helper()
	return startSystemFrom(t, binDir, db, env)
}

// startSystemFrom starts the programs in a directory, which also has gatewayctl.
func startSystemFrom(t *testing.T, bin string, db storetest.Database, env map[string]string) *system {
	t.Helper()
	s := newSystem(t, bin, db, env)
	s.api = startProgramAt(t, filepath.Join(bin, "api"), s.env)
	s.dispatcher = startProgramAt(t, filepath.Join(bin, "dispatcher"), s.env)
	s.worker = startProgramAt(t, filepath.Join(bin, "worker"), s.env)
	s.key = s.newKey("Acme", "billing@acme.example")
	return s
}

// newSystem starts SES and, unless env names one, Redis.
func newSystem(t *testing.T, bin string, db storetest.Database, env map[string]string) *system {
	t.Helper()
	s := &system{t: t, bin: bin, db: db, ses: sessim.New(sessim.Config{MaxSendRate: 10_000, InboxMails: 200_000, InboxBytes: 1 << 30})}
	t.Cleanup(s.ses.Close)
	s.sesAt = serveSES(t, "127.0.0.1:0", s.ses)
	s.env = map[string]string{
		"DATABASE_URL": s.db.URL, "SES_ENDPOINT": "http://" + s.sesAt, "AWS_REGION": "us-east-1",
		"API_ADDR": "127.0.0.1:0", "DISPATCHER_ADDR": "127.0.0.1:0", "WORKER_ADDR": "127.0.0.1:0",
		"CPF_CNPJ_KEYS":   "test:" + base64.StdEncoding.EncodeToString(make([]byte, 32)),
		"MONITORING_USER": "ops", "MONITORING_PASSWORD": "night-shift", "STORAGE_URL": "file://" + t.TempDir(),
	}
	if env["REDIS_URL"] == "" {
		s.redis = servertest.Start(t, "redis")
		s.env["REDIS_URL"] = s.redis.URL
	}
	maps.Copy(s.env, env)
	return s
}

// scopes are those of a tenant's key that the previous release knows too; newScopes are those it does not know.
var (
	scopes    = []string{"emails:send", "emails:read", "mailings:write", "mailings:read", "recipients:write", "suppressions:write", "deadletters:write"}
	newScopes = []string{"templates:write", "templates:read"}
)

// newKey creates a company and a key for it, with gatewayctl only where that is another release's or has a role of its own:
// two processes for each of a hundred systems take ten seconds of CPU time.
func (s *system) newKey(company, from string) string {
	s.t.Helper()
	if s.bin == binDir && s.db.Store != nil {
		return s.insertKey(company, from)
	}
	key, err := programs.NewKey(s.t.Context(), s.operator(), s.bin, company, from, strings.Join(scopes, ","))
	if err != nil {
		s.t.Fatal(err)
	}
	return key
}

// insertKey writes what gatewayctl company create and key create write. It repeats what a busy machine interrupts: Postgres ends
// transactions that are idle for 5 s.
func (s *system) insertKey(company, from string) (key string) {
	s.t.Helper()
	_, domain, _ := strings.Cut(from, "@")
	made := tenant.NewCompany{ID: uuid.Must(uuid.NewV7()), Name: company, DefaultFrom: from, SenderDomains: []string{domain}}
	eventually(s.t, func() error {
		if err := s.db.Store.CreateCompany(s.t.Context(), storetest.Operator(), made); err != nil && !errors.Is(err, store.ErrExists) {
			return err
		}
		id, secret := strings.ToLower(rand.Text()[:16]), strings.ToLower(rand.Text()+rand.Text())
		sum := sha256.Sum256([]byte(secret))
		key = "gw_live_" + id + "_" + secret
		_, err := s.db.Store.CreateAPIKey(s.t.Context(), storetest.Operator(), tenant.APIKey{
			KeyID: id, CompanyID: made.ID, Name: "default", Environment: "live", SecretSHA256: sum[:], Scopes: slices.Concat(scopes, newScopes),
		})
		return err
	})
	return key
}

func (s *system) gatewayctl(args ...string) string {
	s.t.Helper()
	out, err := programs.Output(s.t.Context(), s.operator(), filepath.Join(s.bin, "gatewayctl"), args...)
	if err != nil {
		s.t.Fatalf("%v\n%s", err, out)
	}
	return string(out)
}

// operator is the environment of gatewayctl.
func (s *system) operator() []string { return append(os.Environ(), "DATABASE_URL="+s.db.URL) }

// migrate runs the program migrate on a database.
func migrate(t *testing.T, databaseURL string, steps ...string) {
	t.Helper()
	migrateFrom(t, binDir, databaseURL, steps...)
}

func migrateFrom(t *testing.T, bin, databaseURL string, steps ...string) {
	t.Helper()
	environ := programs.Environ(map[string]string{"DATABASE_URL": databaseURL})
	if _, err := programs.Output(t.Context(), environ, filepath.Join(bin, "migrate"), steps...); err != nil {
		t.Fatal(err)
	}
}

// freeAddress returns an address that stays free while its server is stopped.
func freeAddress(t *testing.T) string {
	t.Helper()
	addr, err := local.FreeAddress()
	if err != nil {
		t.Fatal(err)
	}
	return addr
}

// serveSES serves the handler at the address until the test ends, and returns the address.
func serveSES(t *testing.T, addr string, handler http.Handler) string {
	t.Helper()
	at, _ := serveSESUntil(t, addr, handler)
	return at
}

// serveSESUntil is serveSES with a function that makes the address refuse connections.
func serveSESUntil(t *testing.T, addr string, handler http.Handler) (at string, refuse func()) {
	t.Helper()
	// Like a Node server: an idle connection is closed after 5 s.
	server, err := local.Serve(addr, &http.Server{Handler: handler, IdleTimeout: 5 * time.Second, ReadHeaderTimeout: 5 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	refuse = func() { _ = server.Close() }
	t.Cleanup(refuse)
	return server.Addr, refuse
}

// restartWorker stops the worker and starts another, with env in addition to its settings.
func (s *system) restartWorker(env map[string]string) {
	s.t.Helper()
	s.worker.stop()
	s.worker = startProgram(s.t, "worker", s.env, env)
}
