package blob_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"email-gateway/shared/blob"
)

// smallDisk mounts a small file system, which needs root.
func smallDisk(t *testing.T) (dir string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root can mount a disk that is small enough to be filled")
	}
	dir, err := os.MkdirTemp("", "email-gateway-disk-") // not TempDir, whose cleanup may come before the disk is unmounted
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Remove(dir) })
	switch err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "mode=700,size=256k"); {
	case errors.Is(err, syscall.EPERM): // a root without that right, as in a container
		t.Skipf("no disk can be mounted here: %v", err)
	case err != nil:
		t.Fatalf("mount a small disk: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Errorf("unmount: %v", err)
		}
	})
	return dir
}

// A full disk still takes empty files, but it is not usable as a storage. Reading from it is possible.
func TestFolder_FullDisk(t *testing.T) {
	t.Parallel()
	disk := smallDisk(t)
	b := open(t, "file://"+disk)
	if err := b.Ping(t.Context()); err != nil {
		t.Fatalf("a disk with free space: %v", err)
	}
	filler := filepath.Join(disk, "filler")
	if err := os.WriteFile(filler, make([]byte, 1<<20), 0o600); !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("fill the disk: %v", err)
	}
	if err := b.Put(t.Context(), "files/a", bytes.NewReader(make([]byte, 1000))); !errors.Is(err, blob.ErrUnavailable) {
		t.Fatalf("put: %v", err)
	}
	if err := b.Ping(t.Context()); !errors.Is(err, blob.ErrUnavailable) || !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("ping: %v", err)
	}
	if err := b.PingRead(t.Context()); err != nil {
		t.Errorf("ping of a program that only reads: %v", err)
	}
	if left, err := filepath.Glob(filepath.Join(disk, "ping.*")); len(left) > 0 || err != nil {
		t.Errorf("files left by checks: %v, %v", left, err)
	}
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	if err := b.Ping(t.Context()); err != nil {
		t.Errorf("a disk with free space again: %v", err)
	}
}
