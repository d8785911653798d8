package ctl_test

import (
	"encoding/json"
	"errors"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"email-gateway/api/internal/ctl"
	"email-gateway/schema"
	"email-gateway/shared/store/installation"
)

type examinedView struct {
	Status, CheckedAt string
	Findings          []struct{ Check, Status, Text, Advice string }
}

func (e examinedView) of(check string) (status, text string) {
	for _, f := range e.Findings {
		if f.Check == check {
			return f.Status, f.Text
		}
	}
	return "", ""
}

// The exit code reflects the worst finding, also if the database is not reachable.
func TestDoctor(t *testing.T) {
	t.Parallel()
	tenant, by, d := newTenant(t)
	if err := schema.Roles(t.Context(), d.SQL); err != nil {
		t.Fatal(err)
	}
	examine := func(o operator, code int) (v examinedView) {
		t.Helper()
		got := o.run(t, "doctor", "--json")
		if err := json.Unmarshal([]byte(got.stdout), &v); err != nil || got.code != code {
			t.Fatalf("%+v: %v", got, err)
		}
		return v
	}
	by.env = map[string]string{"API_URL": tenant.env["API_URL"], "STORAGE_URL": "file://" + t.TempDir()}
	v := examine(by, ctl.ExitFailed)
	for check, want := range map[string]string{
		"database": "ok", "migrations": "ok", "dispatcher": "failure", "worker": "failure", "redis": "skipped", "api": "warning", "storage": "ok",
		"companies": "ok", "settings": "skipped", "breaker": "ok",
	} {
		if status, text := v.of(check); status != want {
			t.Errorf("%s is %s: %s; want %s", check, status, text, want)
		}
	}
	if v.Status != "failure" || v.CheckedAt == "" {
		t.Errorf("%+v", v)
	}
	// With the api's settings on the same machine, API_URL is not needed.
	_, port, _ := strings.Cut(strings.TrimPrefix(tenant.env["API_URL"], "http://"), ":")
	beside := by
	beside.env = map[string]string{"API_ADDR": "0.0.0.0:" + port}
	if status, text := examine(beside, ctl.ExitFailed).of("api"); status != "warning" {
		t.Errorf("with API_ADDR instead of API_URL, the api is %s: %s", status, text)
	}
	for _, service := range []string{"dispatcher", "worker"} {
		if err := d.Store.ReportStatus(t.Context(), service, "here-1", time.Now(), json.RawMessage(`{"redis":{"status":"connected"},"ses":{"status":"connected"}}`)); err != nil {
			t.Fatal(err)
		}
	}
	if v := examine(by, ctl.ExitOK); v.Status != "warning" { // of a superuser
		t.Errorf("%+v", v)
	}
	text := by.must(t, "doctor")
	for _, want := range []string{"ok        worker       1 running: worker here-1.", "0 failures, ", "                        -> "} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing in\n%s", want, text)
		}
	}

	unreachable := operator{databaseURL: "postgres://gateway:hunter2@127.0.0.1:1/gateway?sslmode=disable", env: by.env}
	if status, text := examine(unreachable, ctl.ExitFailed).of("database"); status != "failure" || strings.Contains(text, "hunter2") || !strings.Contains(text, "connection refused") {
		t.Error(text)
	}
	if got := unreachable.run(t, "doctor"); got.code != ctl.ExitFailed || !strings.HasPrefix(got.stdout, "skipped   settings") || !strings.Contains(got.stderr, "check failed") {
		t.Errorf("%+v", got)
	}
	if got := (operator{}).run(t, "doctor"); got.code != ctl.ExitUsage || !strings.Contains(got.stderr, "DATABASE_URL is not set") {
		t.Errorf("%+v", got)
	}
	absent := filepath.Join(t.TempDir(), "absent")
	by.env["STORAGE_URL"] = "file://" + absent
	if status, text := examine(by, ctl.ExitFailed).of("storage"); status != "failure" || !strings.Contains(text, "stat "+absent) {
		t.Error(status, text)
	}
	if err := installation.New(d.Store.DB()).RecordMarked(t.Context()); err != nil {
		t.Fatal(err)
	}
	wrong := by
	wrong.env = map[string]string{"STORAGE_URL": "file://" + t.TempDir()}
	if status, text := examine(wrong, ctl.ExitFailed).of("storage"); status != "failure" || !strings.Contains(text, "STORAGE_URL does not name the storage of this installation") {
		t.Error(status, text)
	}
	if _, err := os.Stat(absent); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("doctor has created the storage folder: %v", err)
	}
	away := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(away.Close)
	by.env["API_URL"] = away.URL
	if status, text := examine(by, ctl.ExitFailed).of("api"); status != "failure" || !strings.Contains(text, "HTTP status 404 and is not from the gateway") {
		t.Error(status, text)
	}
}
