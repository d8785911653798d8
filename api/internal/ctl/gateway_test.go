package ctl_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"log/slog"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"email-gateway/api"
	"email-gateway/api/internal/apikey"
	"email-gateway/api/internal/httpapi"
	"email-gateway/api/internal/mailing"
	"email-gateway/shared/blob"
	"email-gateway/shared/keyring"
	eventstore "email-gateway/shared/store/event"
	filestore "email-gateway/shared/store/file"
	"email-gateway/shared/store/lane"
	"email-gateway/shared/store/storetest"
	"email-gateway/shared/store/template"
	"email-gateway/shared/store/usage"
	"email-gateway/shared/store/webhook"
	"email-gateway/shared/unsubscribe"
)

// newTenant starts an api and returns a tenant of it: the company Acme with a key that has
// all scopes. Only the operator, by, has DATABASE_URL.
func newTenant(t *testing.T) (tenant, by operator, d storetest.Database) {
	t.Helper()
	by, d = newOperator(t)
	url := serveAPI(t, d)
	by.must(t, "company", "create", "--name", "Acme", "--default-from", "Acme <billing@acme.example>")
	return operator{env: map[string]string{"API_URL": url, "API_KEY": by.newKey(t, "Acme", "--rate", "0")}}, by, d
}

func (o operator) newKey(t *testing.T, company string, flags ...string) string {
	t.Helper()
	var made key
	o.decode(t, &made, append([]string{"key", "create", "--company", company, "--scopes", strings.Join(apikey.Scopes(), ",")}, flags...)...)
	return made.Key
}

// serveAPI runs an api until the test ends.
func serveAPI(t *testing.T, d storetest.Database) string {
	t.Helper()
	secret := func(b byte) string { return base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{b}, 32)) }
	ring, err := keyring.Parse("test:" + secret(1))
	if err != nil {
		t.Fatal(err)
	}
	var links unsubscribe.Keys
	if err := links.UnmarshalText([]byte(secret(2))); err != nil {
		t.Fatal(err)
	}
	bucket, err := blob.Open(t.Context(), "file://"+filepath.Join(t.TempDir(), "storage"), blob.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = bucket.Close() })
	accepter := d.Store.NewAccepter()
	t.Cleanup(accepter.Close)
	log := slog.New(slog.DiscardHandler)
	handler, err := httpapi.New(httpapi.Params{
		Log: log, Store: d.Store, Accepter: accepter, Templates: template.New(d.Store.DB()), Webhooks: webhook.New(d.Store.DB()), Feed: eventstore.New(d.Store.DB()), Files: filestore.New(d.Store.DB()), Usage: usage.New(d.Store.DB()), Wake: func(...lane.Lanes) {}, Registry: prometheus.NewRegistry(), Ring: ring, EmailTTL: 24 * time.Hour,
		HasRabbitMQ: true, Bucket: bucket, Tokens: mailing.NewTokens(log), PublicURL: "https://mail.acme.example", UnsubscribeKeys: links,
		OpenAPI: api.OpenAPI(),
	})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	return server.URL
}

// file writes a temporary file and returns its path.
func file(t *testing.T, name, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// object runs a command with --json and decodes its output.
func (o operator) object(t *testing.T, args ...string) map[string]any {
	t.Helper()
	var fields map[string]any
	if err := json.Unmarshal([]byte(o.must(t, append(args, "--json")...)), &fields); err != nil {
		t.Fatalf("gatewayctl %s --json: %v", strings.Join(args, " "), err)
	}
	return fields
}

// unmarshal runs a command with --json and decodes the fields of its output that into has.
func (o operator) unmarshal(t *testing.T, into any, args ...string) {
	t.Helper()
	if err := json.Unmarshal([]byte(o.must(t, append(args, "--json")...)), into); err != nil {
		t.Fatalf("gatewayctl %s --json: %v", strings.Join(args, " "), err)
	}
}
