package main

import (
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/uuid"

	"email-gateway/shared/blob"
	"email-gateway/shared/logtest"
	"email-gateway/shared/store/installation"
	"email-gateway/shared/store/storetest"
	"email-gateway/shared/waittest"
)

// The api marks its storage at start, and does not write into one that is not its installation's.
func TestRun_MarksStorage(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	_, key := newKey(t, d)
	id, _, err := installation.New(d.Store.DB()).Installation(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	storage := filepath.Join(t.TempDir(), "files")
	addr, stop := running(t, environ(t, d.URL, "STORAGE_URL=file://"+storage))
	marker := filepath.Join(storage, "installation")
	waittest.Until(t, "the storage has its marker", func() bool {
		content, err := os.ReadFile(marker)
		return err == nil && strings.TrimSpace(string(content)) == id.String()
	})
	waittest.Until(t, "the database has the marker", func() bool {
		_, marked, err := installation.New(d.Store.DB()).Installation(t.Context())
		return err == nil && marked
	})
	if status, text := upload(t, addr, key, "a"); status != http.StatusCreated {
		t.Errorf("%d %s", status, text)
	}
	if err := os.WriteFile(marker, []byte(uuid.NewString()), 0o600); err != nil {
		t.Fatal(err)
	}
	if status, text := upload(t, addr, key, "b"); status != http.StatusServiceUnavailable || !strings.Contains(text, "STORAGE_UNAVAILABLE") {
		t.Errorf("another installation's storage: %d %s", status, text)
	}
	if err := stop(); err != nil {
		t.Errorf("stop: %v", err)
	}

	// A disk that is not mounted is an empty folder.
	empty := t.TempDir()
	addr, stop = running(t, environ(t, d.URL, "STORAGE_URL=file://"+empty))
	if status, text := upload(t, addr, key, "c"); status != http.StatusServiceUnavailable {
		t.Errorf("an empty folder: %d %s", status, text)
	}
	if files, err := os.ReadDir(empty); err != nil || len(files) != 0 {
		t.Errorf("the api has written %v (%v)", files, err)
	}
	if err := stop(); err != nil {
		t.Errorf("stop: %v", err)
	}
}

// An api whose storage does not respond logs why, even without a request to /health.
func TestStorage_LogsReason(t *testing.T) {
	t.Parallel()
	log := &logtest.Buffer{}
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	bucket, err := blob.Open(t.Context(), "file://"+path+"/folder", blob.Options{})
	if err != nil {
		t.Fatal(err)
	}
	s := newStorage(slog.New(slog.NewTextHandler(log, nil)), bucket)
	marking := s.mark()
	if err := marking.Start(t.Context(), func(err error) { t.Error(err) }); err != nil {
		t.Fatal(err)
	}
	waittest.Until(t, "the reason", func() bool { return log.Count("dependency does not respond") == 1 && log.Count("not a directory") == 1 })
	if err := marking.Stop(t.Context()); err != nil {
		t.Error(err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := s.Ping(t.Context()); err != nil || log.Count("dependency responds again") != 1 {
		t.Errorf("%v, logged: %s", err, log.String())
	}
}

// upload uploads a file for attachments.
func upload(t *testing.T, addr, key, content string) (int, string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+addr+"/v1/files", strings.NewReader(content))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", "text/plain")
	request.Header.Set("X-API-Key", key)
	return answered(t, request)
}
