package maintenance_test

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"email-gateway/shared/store/file"
	"email-gateway/shared/store/storetest"
	"email-gateway/shared/waittest"
	"email-gateway/worker/internal/maintenance"
)

// The cleaner deletes the row of an unused file, which a failover may restore, and not its object: the orphan sweeper does.
func TestCleaners_UnusedFiles(t *testing.T) {
	t.Parallel()
	d, root := storetest.New(t), t.TempDir()
	company, files := d.Company(t), storageOf(t, d, root, true)
	stored := file.New(d.Store.DB())
	store := func(content byte, used time.Duration) (key string) {
		t.Helper()
		f := file.File{ID: madeBefore(used), CompanyID: company, SHA256: bytes.Repeat([]byte{content}, 32), Size: 1, Bytes: 1, MediaType: "text/plain"}
		key = file.Key(company, f.ID)
		if err := files.Put(t.Context(), key, strings.NewReader("x")); err != nil {
			t.Fatal(err)
		}
		if _, err := d.Store.AddFile(t.Context(), f); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(filepath.Join(root, key), time.Time{}, time.Now().Add(-used)); err != nil {
			t.Fatal(err)
		}
		execute(t, d, `UPDATE stored_files SET used_at = now() - $2 * interval '1 ms' WHERE id = $1`, f.ID, used.Milliseconds())
		return key
	}
	unused, used := store(1, 26*time.Hour), store(2, 24*time.Hour)
	registry, _ := cleaners(t, d, func(p *maintenance.CleanersParams) { p.Files, p.Stored = files, stored })
	waittest.Until(t, "the row is deleted", func() bool { return done(t, "stored_file_deleted", registry) == 1 })
	if !there(root, unused) || !there(root, used) {
		t.Fatal("the cleaner has deleted an object")
	}
	run(t, maintenance.NewOrphanSweeper(maintenance.OrphanSweeperParams{
		Log: slog.New(slog.DiscardHandler), Blobs: files, Mailings: d.Store, Files: stored, Registry: prometheus.NewRegistry(),
	}))
	waittest.Until(t, "the object is deleted", func() bool { return !there(root, unused) })
	if !there(root, used) {
		t.Error("the sweeper has deleted the object of a row")
	}
}
