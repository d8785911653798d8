package main

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"email-gateway/shared/blob"
	"email-gateway/shared/logtest"
	"email-gateway/shared/waittest"
)

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
