package e2e_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
)

// ownerOf returns the account that owns a server's files.
func ownerOf(t *testing.T, path string) *syscall.Stat_t {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	owner, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		t.Fatalf("%s has no owner", path)
	}
	return owner
}

// giveTo changes the owner of files, and opens their parent folders to it.
func giveTo(t *testing.T, owner *syscall.Stat_t, paths ...string) {
	t.Helper()
	for _, path := range paths {
		err := filepath.WalkDir(path, func(name string, _ os.DirEntry, err error) error {
			if err != nil {
				return err
			}
			return os.Lchown(name, int(owner.Uid), int(owner.Gid))
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// openFolder returns a temporary folder that another account can access: the test's own is inside folders that only
// the test can read.
func openFolder(t *testing.T) string {
	t.Helper()
	folder, err := os.MkdirTemp("", "log-") //nolint:usetesting // see above
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(folder) })
	return folder
}

// copyOf copies a folder with its owner.
func copyOf(t *testing.T, from, to string) {
	t.Helper()
	if out, err := exec.CommandContext(t.Context(), "cp", "-a", from, to).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}
