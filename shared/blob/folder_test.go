package blob_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"email-gateway/shared/blob"
)

func TestFolder_OnDisk(t *testing.T) {
	t.Parallel()
	root := filepath.Join(t.TempDir(), "var", "files")
	b := open(t, "file://"+root)
	if _, err := os.Stat(root); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the folder was created before the first Put: %v", err)
	}
	if err := b.Put(t.Context(), "mailings/acme/1.csv", strings.NewReader("x")); err != nil {
		t.Fatal(err)
	}
	if err := b.Ping(t.Context()); err != nil {
		t.Fatal(err)
	}
	found := make(map[string]string)
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := entry.Info()
		found[strings.TrimPrefix(path, root)] = info.Mode().String()
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{
		"": "drwx------", "/mailings": "drwx------", "/mailings/acme": "drwx------", "/mailings/acme/1.csv": "-rw-------",
	}
	if diff := cmp.Diff(want, found); diff != "" {
		t.Error(diff)
	}
}

// Files left by a killed process are not shown, and are deleted when they are old.
func TestFolder_Unfinished(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	b := open(t, "file://"+root)
	if err := b.Put(t.Context(), "mailings/whole.csv", strings.NewReader("x")); err != nil {
		t.Fatal(err)
	}
	// The name is taken from a running upload, so that the test also checks its format.
	var left string
	look := func() error {
		names, err := filepath.Glob(filepath.Join(root, "mailings", "half.csv*"))
		if len(names) != 1 {
			t.Errorf("under way: %v, %v", names, err)
			return err
		}
		left = names[0]
		return nil
	}
	if err := b.Put(t.Context(), "mailings/half.csv", &calling{f: look}); err != nil {
		t.Fatal(err)
	}
	if err := b.Delete(t.Context(), "mailings/half.csv"); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(left, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(left, time.Time{}, time.Now().Add(-2*time.Hour)); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"mailings/whole.csv"}, keys(list(t, b, ""))); diff != "" {
		t.Error(diff)
	}
	for _, tt := range []struct {
		prefix string
		age    time.Duration
		want   int
	}{{"mailings/", 3 * time.Hour, 0}, {"mail/", 0, 0}, {"mailings/", time.Hour, 1}, {"mailings/", 0, 0}} {
		if n, err := b.DropUnfinished(t.Context(), tt.prefix, time.Now().Add(-tt.age)); n != tt.want || err != nil {
			t.Errorf("older than %s below %s: dropped %d, want %d (%v)", tt.age, tt.prefix, n, tt.want, err)
		}
	}
	if diff := cmp.Diff([]string{"mailings/whole.csv"}, keys(list(t, b, ""))); diff != "" {
		t.Error(diff)
	}
}

func TestFolder_Unavailable(t *testing.T) {
	t.Parallel()
	root := filepath.Join(t.TempDir(), "files")
	if err := os.WriteFile(root, nil, 0o600); err != nil { // a file in place of the folder
		t.Fatal(err)
	}
	b := open(t, "file://"+root)
	for name, ask := range operations(b) {
		if name == "drop" { // there is nothing to drop
			continue
		}
		if err := ask(t.Context()); !errors.Is(err, blob.ErrUnavailable) {
			t.Errorf("%s: %v", name, err)
		}
	}

	// A folder that existed and is gone: its files are not reported as missing.
	root = filepath.Join(t.TempDir(), "files")
	b = open(t, "file://"+root)
	if _, err := b.Get(t.Context(), "a.csv"); !errors.Is(err, blob.ErrNotFound) {
		t.Errorf("get from an empty folder: %v", err)
	}
	if err := os.RemoveAll(root); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Get(t.Context(), "a.csv"); !errors.Is(err, blob.ErrUnavailable) {
		t.Errorf("get from no folder: %v", err)
	}
	if err := b.Ping(context.Background()); !errors.Is(err, blob.ErrUnavailable) {
		t.Errorf("ping: %v", err)
	}
}

// Some network disks cannot sync a directory, as /proc cannot: uploads must not fail after the file is in its place.
func TestFolder_CannotSyncDirectory(t *testing.T) {
	t.Parallel()
	if err := blob.SyncFolder("/proc"); err != nil {
		t.Error(err)
	}
	if err := blob.SyncFolder(filepath.Join(t.TempDir(), "gone")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a missing folder: %v", err)
	}
}

// Listing a folder costs as much per file whatever their number. The test is not parallel, since it counts all allocations.
func TestFolder_ListIsLinear(t *testing.T) {
	allocations := func(files int) float64 {
		root := t.TempDir()
		dir := filepath.Join(root, "files", "acme")
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		for i := range files {
			if err := os.WriteFile(filepath.Join(dir, strconv.Itoa(i)), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		b := open(t, "file://"+root)
		return testing.AllocsPerRun(1, func() {
			if n := len(list(t, b, "files/")); n != files {
				t.Errorf("%d of %d files are listed", n, files)
			}
		})
	}
	if few, many := allocations(5500), allocations(22_000); many > 6*few {
		t.Errorf("%v allocations for 5,500 files, %v for 22,000", few, many)
	}
}
