package httpapi_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"

	"email-gateway/api"
	"email-gateway/api/internal/apikey"
	"email-gateway/api/internal/httpapi"
	"email-gateway/api/internal/mailing"
	"email-gateway/shared/blob"
	"email-gateway/shared/keyring"
	"email-gateway/shared/logtest"
	"email-gateway/shared/store/event"
	filestore "email-gateway/shared/store/file"
	"email-gateway/shared/store/lane"
	"email-gateway/shared/store/storetest"
	"email-gateway/shared/store/template"
	"email-gateway/shared/store/tenant"
	"email-gateway/shared/store/usage"
	"email-gateway/shared/store/webhook"
	"email-gateway/shared/telemetry"
	"email-gateway/shared/unsubscribe"
)

// gateway is an api for one test: a database, a company with a key with all scopes, and a server on a free
// port.
type gateway struct {
	storetest.Database
	URL      string
	Handler  http.Handler
	Metrics  http.Handler
	Company  uuid.UUID
	Key      apikey.Key
	Ring     keyring.Ring
	Log      *logtest.Buffer
	Wakes    *atomic.Int64
	Storage  storageFolder
	Programs otherPrograms
	Routes   []string // "GET /v1/email/{id}"
}

// start creates a gateway. change may modify its parameters before it serves; it may be nil.
func start(tb testing.TB, change func(*httpapi.Params)) *gateway {
	tb.Helper()
	return startOn(tb, storetest.New(tb), change)
}

func startOn(tb testing.TB, d storetest.Database, change func(*httpapi.Params)) *gateway {
	tb.Helper()
	ring, err := keyring.Parse("test:" + base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{1}, 32)))
	if err != nil {
		tb.Fatal(err)
	}
	g := &gateway{Database: d, Programs: otherPrograms{d}, Ring: ring, Log: &logtest.Buffer{}, Wakes: &atomic.Int64{}}
	accepter := d.Store.NewAccepter()
	tb.Cleanup(accepter.Close)
	registry := prometheus.NewRegistry()
	params := httpapi.Params{
		Log: slog.New(slog.NewJSONHandler(g.Log, nil)), Store: d.Store, Accepter: accepter, Templates: template.New(d.Store.DB()), Files: filestore.New(d.Store.DB()), Feed: event.New(d.Store.DB()), Wake: func(...lane.Lanes) { g.Wakes.Add(1) },
		Registry: registry, Ring: ring, EmailTTL: 24 * time.Hour, HasRabbitMQ: true,
		Bucket: g.bucket(tb), Tokens: mailing.NewTokens(slog.New(slog.DiscardHandler)),
		PublicURL: "https://mail.acme.example", UnsubscribeKeys: unsubscribeKeys(tb),
		Usage: usage.New(d.Store.DB()), Webhooks: webhook.New(d.Store.DB()), OpenAPI: api.OpenAPI(),
	}
	if change != nil {
		change(&params)
	}
	handler, err := httpapi.New(params)
	if err != nil {
		tb.Fatal(err)
	}
	for _, route := range handler.Routes() {
		if route.Method == http.MethodHead {
			continue // openapi.yaml describes the GET
		}
		g.Routes = append(g.Routes, route.Method+" "+regexp.MustCompile(`:([a-z]+)`).ReplaceAllString(route.Path, "{$1}"))
	}
	server := httptest.NewUnstartedServer(handler)
	// As in the api. With timeouts a server sets the deadlines of a connection anew for each request: without them the one
	// that a handler has set would end a later request.
	server.Config.ReadTimeout, server.Config.WriteTimeout = time.Minute, time.Minute
	server.Start()
	tb.Cleanup(server.Close)
	g.URL, g.Handler, g.Metrics = server.URL, handler, telemetry.MetricsHandler(registry)
	g.Company = d.Company(tb)
	g.Key = g.newKey(tb, g.Company, nil)
	return g
}

// metrics returns the response of the metrics listener.
func (g *gateway) metrics(tb testing.TB) string {
	tb.Helper()
	answer := httptest.NewRecorder()
	g.Metrics.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/metrics", http.NoBody))
	return answer.Body.String()
}

// bucket is a temporary storage.
func (g *gateway) bucket(tb testing.TB) *blob.Bucket {
	tb.Helper()
	g.Storage = storageFolder(filepath.Join(tb.TempDir(), "storage"))
	bucket, err := blob.Open(tb.Context(), g.Storage.url(), blob.Options{})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = bucket.Close() })
	return bucket
}

func unsubscribeKeys(tb testing.TB) unsubscribe.Keys {
	tb.Helper()
	var keys unsubscribe.Keys
	if err := keys.UnmarshalText([]byte(base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{2}, 32)))); err != nil {
		tb.Fatal(err)
	}
	return keys
}

// newKey creates a key with all scopes and no rate limit. change may be nil.
func (g *gateway) newKey(tb testing.TB, company uuid.UUID, change func(*tenant.APIKey)) apikey.Key {
	tb.Helper()
	key, err := apikey.New("test")
	if err != nil {
		tb.Fatal(err)
	}
	row := tenant.APIKey{
		KeyID: key.ID, CompanyID: company, Name: "test", Environment: key.Environment,
		SecretSHA256: key.SecretSHA256(), Scopes: apikey.Scopes(), Burst: 1,
	}
	if change != nil {
		change(&row)
	}
	if _, err := g.Store.CreateAPIKey(tb.Context(), storetest.Operator(), row); err != nil {
		tb.Fatal(err)
	}
	return key
}

// reply is a response.
type reply struct {
	Status int
	Header http.Header
	Body   string
}

// problem is the problem in a reply.
type problem struct {
	Type, Title, Detail, Code, RequestID string
	Status                               int
	Errors                               []struct{ Field, Code, Message string }
}

func (r reply) problem(tb testing.TB) problem {
	tb.Helper()
	var p problem
	if err := json.Unmarshal([]byte(r.Body), &p); err != nil {
		tb.Fatalf("%d %s: %v", r.Status, r.Body, err)
	}
	return p
}

func (r reply) json(tb testing.TB) map[string]any {
	tb.Helper()
	var values map[string]any
	if err := json.Unmarshal([]byte(r.Body), &values); err != nil {
		tb.Fatalf("%d %s: %v", r.Status, r.Body, err)
	}
	return values
}

// call is a request; zero values are defaults.
type call struct {
	Method  string // GET
	Path    string
	Body    string
	Reader  io.Reader // instead of Body: sent in chunks
	Header  map[string]string
	Key     string // the gateway's own
	NoKey   bool
	Context context.Context
}

// do sends a request and checks its response against the contract.
func (g *gateway) do(tb testing.TB, c call) reply {
	tb.Helper()
	r, err := g.try(tb, c)
	if err != nil {
		tb.Fatalf("%s %s: %v", c.Method, c.Path, err)
	}
	return r
}

func (g *gateway) try(tb testing.TB, c call) (reply, error) {
	tb.Helper()
	if c.Method == "" {
		c.Method = http.MethodGet
	}
	ctx := c.Context
	if ctx == nil {
		ctx = tb.Context()
	}
	reader := c.Reader
	if reader == nil {
		reader = strings.NewReader(c.Body)
	}
	request, err := http.NewRequestWithContext(ctx, c.Method, g.URL+c.Path, reader)
	if err != nil {
		tb.Fatal(err)
	}
	if c.Method == http.MethodPost || c.Method == http.MethodPatch {
		request.Header.Set("Content-Type", "application/json")
	}
	if !c.NoKey {
		key := c.Key
		if key == "" {
			key = g.Key.String()
		}
		request.Header.Set("Authorization", "Bearer "+key)
	}
	for name, value := range c.Header {
		request.Header.Set(name, value)
		if value == "" {
			request.Header.Del(name)
		}
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return reply{}, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return reply{}, err
	}
	r := reply{Status: response.StatusCode, Header: response.Header, Body: string(text)}
	holdToContract(tb, c.Method, c.Path, r)
	return r, nil
}

// send posts an email.
func (g *gateway) send(tb testing.TB, body string) reply {
	tb.Helper()
	return g.do(tb, call{Method: http.MethodPost, Path: "/v1/email/send", Body: body})
}

// accept posts a valid email and returns its id.
func (g *gateway) accept(tb testing.TB, body string) string {
	tb.Helper()
	r := g.send(tb, body)
	if r.Status != http.StatusAccepted {
		tb.Fatalf("%d %s", r.Status, r.Body)
	}
	id, _ := r.json(tb)["outboxId"].(string)
	return id
}

// fields are the fields of a request body.
type fields map[string]any

// email returns a valid request body. change may be nil.
func emailBody(change func(f fields)) string {
	f := fields{
		"to": "ana@example.com", "subject": "Sua fatura", "html": "<p>Olá, Ana.</p>",
		"recipient": fields{"externalId": "CUST-1", "email": "ana@example.com"},
	}
	if change != nil {
		change(f)
	}
	text, err := json.Marshal(f)
	if err != nil {
		panic(err)
	}
	return string(text)
}

// with changes one field.
func with(name string, value any) func(fields) { return func(f fields) { f[name] = value } }

// person changes one field of the recipient.
func person(name string, value any) func(fields) {
	return func(f fields) {
		recipient, _ := f["recipient"].(fields)
		recipient[name] = value
	}
}

// rows counts all rows that a request may have left.
func (g *gateway) rows(tb testing.TB) int {
	tb.Helper()
	var n int
	err := g.SQL.QueryRowContext(tb.Context(), `SELECT (SELECT count(*) FROM email_outbox) + (SELECT count(*) FROM email_logs)
		+ (SELECT count(*) FROM email_events) + (SELECT count(*) FROM idempotency_keys) + (SELECT count(*) FROM recipients)
		+ (SELECT count(*) FROM dead_letters) + (SELECT count(*) FROM outbox_aggregates)`).Scan(&n)
	if err != nil {
		tb.Fatal(err)
	}
	return n
}
