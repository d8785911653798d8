package httpapi_test

import (
	"io/fs"
	"path/filepath"
	"strings"
	"testing"
)

// storageFolder is the folder of the uploaded files.
type storageFolder string

func (s storageFolder) url() string { return "file://" + string(s) }

// objects counts the stored files.
func (s storageFolder) objects(tb testing.TB) (n int) {
	tb.Helper()
	err := filepath.WalkDir(filepath.Join(string(s), "files"), func(_ string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() && !strings.HasSuffix(entry.Name(), ".attrs") {
			n++
		}
		return nil
	})
	if err != nil {
		tb.Fatal(err)
	}
	return n
}

// files lists the names in the storage.
func (s storageFolder) files(tb testing.TB) []string {
	tb.Helper()
	var found []string
	err := filepath.WalkDir(string(s), func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.Type().IsRegular() {
			found = append(found, filepath.Base(path))
		}
		return nil // a folder that is not there holds nothing
	})
	if err != nil {
		tb.Fatal(err)
	}
	return found
}
