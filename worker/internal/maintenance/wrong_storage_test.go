package maintenance_test

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"

	"email-gateway/shared/blob"
	"email-gateway/shared/logtest"
	"email-gateway/shared/store/file"
	"email-gateway/shared/store/installation"
	"email-gateway/shared/store/storetest"
	"email-gateway/shared/waittest"
	"email-gateway/worker/internal/maintenance"
)

// storageOf opens the storage in a folder as the api or as a dispatcher.
func storageOf(t *testing.T, d storetest.Database, root string, api bool) *blob.Bucket {
	t.Helper()
	owner := installation.New(d.Store.DB())
	o := blob.Options{Owner: owner}
	if api {
		o.Claim = owner
	}
	b, err := blob.Open(t.Context(), "file://"+root, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	return b
}

// A dispatcher on a host where the disk with the files is not mounted records no file as deleted.
func TestCleaners_WrongStorage(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	right, wrong := t.TempDir(), t.TempDir()
	if err := storageOf(t, d, right, true).Ping(t.Context()); err != nil {
		t.Fatal(err)
	}
	id := d.Mailing(t, company, 1, nil)
	key := fmt.Sprintf("mailings/%s/%s.csv", company, id)
	if err := storageOf(t, d, right, true).Put(t.Context(), key, strings.NewReader("e-mail\n")); err != nil {
		t.Fatal(err)
	}
	execute(t, d, `UPDATE mailings SET status = 'CANCELLED', cancelled = accepted, updated_at = now() - interval '31 days'`)

	_, log := cleaners(t, d, func(p *maintenance.CleanersParams) { p.Files = storageOf(t, d, wrong, false) })
	waittest.Until(t, "the round ended", func() bool { return strings.Contains(log.String(), "clean mailing files") })
	if text := log.String(); !strings.Contains(text, "STORAGE_URL does not name the storage of this installation") {
		t.Errorf("logged: %s", text)
	}
	if n := number(t, d, `SELECT count(*) FROM mailings WHERE file_deleted_at IS NULL`); n != 1 {
		t.Error("a file that still exists is recorded as deleted")
	}
	cleaners(t, d, func(p *maintenance.CleanersParams) { p.Files = storageOf(t, d, right, false) })
	waittest.Until(t, "the file is deleted", func() bool {
		return number(t, d, `SELECT count(*) FROM mailings WHERE file_deleted_at IS NOT NULL`) == 1 && !there(right, key)
	})
	if !there(right, "installation") {
		t.Error("the marker was deleted")
	}
}

// A dispatcher whose STORAGE_URL names the storage of another installation deletes none of its files, which no row of its own
// database names. The marker is no orphan.
func TestOrphanSweeper_WrongStorage(t *testing.T) {
	t.Parallel()
	d, other, root := storetest.New(t), storetest.New(t), t.TempDir()
	execute(t, other, `UPDATE installation SET id = gen_random_uuid()`) // all databases of tests are copies of one
	if err := storageOf(t, d, t.TempDir(), true).Ping(t.Context()); err != nil {
		t.Fatal(err)
	}
	theirs := storageOf(t, other, root, true)
	keys := []string{
		fmt.Sprintf("mailings/%s/%s.csv", uuid.New(), uuid.New()),
		file.Key(uuid.New(), uuid.New()),
	}
	for _, key := range keys {
		if err := theirs.Put(t.Context(), key, strings.NewReader("x")); err != nil {
			t.Fatal(err)
		}
	}
	for _, key := range append(keys, "installation") {
		if err := os.Chtimes(filepath.Join(root, key), time.Time{}, time.Now().Add(-48*time.Hour)); err != nil {
			t.Fatal(err)
		}
	}
	sweep := func(d storetest.Database, until string) {
		t.Helper()
		log := &logtest.Buffer{}
		run(t, maintenance.NewOrphanSweeper(maintenance.OrphanSweeperParams{
			Log: slog.New(slog.NewTextHandler(log, nil)), Blobs: storageOf(t, d, root, false), Mailings: d.Store, Files: file.New(d.Store.DB()),
			Registry: prometheus.NewRegistry(),
		}))
		waittest.Until(t, until, func() bool { return strings.Contains(log.String(), until) })
	}
	sweep(d, "STORAGE_URL does not name the storage of this installation")
	for _, key := range keys {
		if !there(root, key) {
			t.Errorf("%s of another installation was deleted", key)
		}
	}
	sweep(other, "orphaned files deleted")
	if !there(root, "installation") || there(root, keys[0]) || there(root, keys[1]) {
		t.Error("the sweeper has deleted the marker, or not the orphans")
	}
}
