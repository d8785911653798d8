package maintenance_test

import (
	"context"
	"errors"
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
	"email-gateway/shared/store/mailing"
	"email-gateway/shared/store/storetest"
	"email-gateway/shared/uuidv7"
	"email-gateway/shared/waittest"
	"email-gateway/worker/internal/maintenance"
)

// stubbornFiles is a storage that fails to delete one key.
type stubbornFiles struct {
	*blob.Bucket
	key string
}

func (s stubbornFiles) Delete(ctx context.Context, key string) error {
	if key == s.key {
		return errors.New("delete: access denied")
	}
	return s.Bucket.Delete(ctx, key)
}

func TestOrphanSweeper(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	root := t.TempDir()
	files, err := blob.Open(t.Context(), "file://"+root, blob.Options{})
	if err != nil {
		t.Fatal(err)
	}
	put := func(key string, age time.Duration) string {
		t.Helper()
		path := filepath.Join(root, filepath.FromSlash(key))
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte("0123456789"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path, time.Time{}, time.Now().Add(-age)); err != nil {
			t.Fatal(err)
		}
		return key
	}
	file := func(company, id uuid.UUID) string { return fmt.Sprintf("mailings/%s/%s.csv", company, id) }

	const old, young = time.Hour + time.Minute, time.Hour - time.Minute
	keep := []string{
		put(file(company, d.Mailing(t, company, 1, nil)), 100*time.Hour),
		put(file(company, uuid.New()), young),
		put("mailings/README.txt", old),
		put(fmt.Sprintf("mailings/%s/%s.csv.bak", company, uuid.New()), old),
		put(fmt.Sprintf("elsewhere/%s/%s.csv", company, uuid.New()), old),
		put(fmt.Sprintf("mailings/%s/%s.csv.18a.tmp", company, uuid.New()), old),
		put(file(company, uuidv7.New()), 4*time.Hour),  // by the clock of a storage that is hours behind
		put(file(company, madeBefore(3*time.Hour)), 0), // copied there just now
		put(file(company, uuid.New()), old),            // cannot be deleted
	}
	gone := []string{put(fmt.Sprintf("mailings/%s/%s.csv.18a.tmp", company, uuid.New()), 25*time.Hour)}
	deleted := d.Mailing(t, company, 1, func(m *mailing.NewMailing) { m.ID = madeBefore(old) }) // its file was stored again after retention had deleted it
	d.Run(t, `UPDATE mailings SET file_deleted_at = now() WHERE id = $1`, deleted)
	gone = append(gone, put(file(company, deleted), old))
	gone = append(gone, put(file(company, madeBefore(2*time.Hour)), old))
	for range 1100 { // more than two batches
		gone = append(gone, put(file(company, uuid.New()), old))
	}
	twice := uuid.New() // under two companies, which the api never does
	gone = append(gone, put(file(company, twice), old), put(file(uuid.New(), twice), old))

	registry, log := prometheus.NewRegistry(), &logtest.Buffer{}
	sweeper := maintenance.NewOrphanSweeper(maintenance.OrphanSweeperParams{
		Log:   slog.New(slog.NewTextHandler(log, nil)),
		Blobs: stubbornFiles{Bucket: files, key: keep[len(keep)-1]}, Mailings: d.Store, Registry: registry,
	})
	run(t, sweeper)
	waittest.Until(t, "the round ended", func() bool { return strings.Contains(log.String(), "round failed") })
	for _, key := range keep {
		if !there(root, key) {
			t.Errorf("%s was deleted", key)
		}
	}
	for _, key := range gone {
		if there(root, key) {
			t.Errorf("%s is still there", key)
		}
	}
	if text := log.String(); strings.Count(text, "\n") != 2 ||
		!strings.Contains(text, `msg="orphaned files deleted" count=1104 bytes=11040 unfinished=1`) || !strings.Contains(text, "delete: access denied") {
		t.Errorf("logged: %s", text)
	}
	if got := counter(t, registry, "storage_orphans_deleted_total"); got != 1105 {
		t.Errorf("counted %v", got)
	}
}

// During an outage of Postgres or the storage nothing is deleted and nothing counted.
func TestOrphanSweeper_Outage(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	root := t.TempDir()
	files, err := blob.Open(t.Context(), "file://"+root, blob.Options{})
	if err != nil {
		t.Fatal(err)
	}
	key := fmt.Sprintf("mailings/%s/%s.csv", uuid.New(), uuid.New())
	if err := files.Put(t.Context(), key, strings.NewReader("x")); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(filepath.Join(root, key), time.Time{}, time.Now().Add(-2*time.Hour)); err != nil {
		t.Fatal(err)
	}
	if _, err := d.SQL.ExecContext(t.Context(), `ALTER TABLE mailings RENAME TO away`); err != nil {
		t.Fatal(err)
	}
	log := &logtest.Buffer{}
	run(t, maintenance.NewOrphanSweeper(maintenance.OrphanSweeperParams{
		Log: slog.New(slog.NewTextHandler(log, nil)), Blobs: files, Mailings: d.Store, Registry: prometheus.NewRegistry(),
	}))
	waittest.Until(t, "the round failed", func() bool { return strings.Contains(log.String(), "look for mailings") })
	if !there(root, key) {
		t.Error("a file was deleted although it is unknown whether a mailing refers to it")
	}
	if strings.Contains(log.String(), "deleted") {
		t.Errorf("logged: %s", log)
	}
}

// madeBefore returns an id of the time that long ago.
func madeBefore(age time.Duration) uuid.UUID {
	id := uuidv7.First(time.Now().Add(-age))
	id[6], id[8] = 0x70, 0x80
	return id
}

func there(root, key string) bool {
	_, err := os.Stat(filepath.Join(root, filepath.FromSlash(key)))
	return err == nil
}

func counter(t *testing.T, registry *prometheus.Registry, name string) float64 {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() == name {
			return family.GetMetric()[0].GetCounter().GetValue() + family.GetMetric()[0].GetGauge().GetValue()
		}
	}
	t.Fatalf("no metric %s", name)
	return 0
}
