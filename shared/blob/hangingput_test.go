package blob_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"

	"email-gateway/shared/blob"
	"email-gateway/shared/waittest"
)

// hangingDisk mounts a file system whose server does not answer, so that every call in the folder hangs until release. It needs
// root and FUSE.
func hangingDisk(dir string) (release func(), err error) {
	server, err := syscall.Open("/dev/fuse", syscall.O_RDWR|syscall.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	if err := syscall.Mount("fuse", dir, "fuse", 0, fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0", server)); err != nil {
		_ = syscall.Close(server)
		return nil, err
	}
	return sync.OnceFunc(func() {
		_ = syscall.Unmount(dir, syscall.MNT_DETACH)
		_ = syscall.Close(server) // all calls fail
	}), nil
}

// A Put on a disk that hangs ends, at its first call or at its last ones, and leaves no unfinished file behind once the
// disk responds. However many they are, at most 64 calls hang.
func TestFolderHangs_Put(t *testing.T) { // not parallel: it counts goroutines
	for _, hangsAtOnce := range []bool{true, false} {
		puts := 100
		if !hangsAtOnce {
			puts = 64
		}
		root, err := os.MkdirTemp("", "email-gateway-hangs-") // not TempDir, whose cleanup may come before the disk is unmounted
		if err != nil {
			t.Fatal(err)
		}
		dir, release := filepath.Join(root, "files"), func() {}
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		hang := sync.OnceValue(func() (err error) {
			release, err = hangingDisk(dir)
			return err
		})
		t.Cleanup(func() {
			release()
			_ = os.RemoveAll(root)
		})
		b := open(t, "file://"+root)
		before := runtime.NumGoroutine()
		if hangsAtOnce {
			if err := hang(); err != nil {
				release = func() {}
				t.Skipf("no file system can be mounted: %v", err)
			}
		}
		var putting, created sync.WaitGroup
		created.Add(puts)
		for i := range puts {
			putting.Go(func() {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				waits := hangsAtOnce && i == 0 // for as long as the disk may hang
				if !waits {
					time.AfterFunc(2*time.Second, cancel)
				}
				content := &calling{f: func() error {
					created.Done()
					created.Wait()
					return hang()
				}}
				err := b.Put(ctx, fmt.Sprintf("files/%d", i), content)
				if silent := errors.Is(err, blob.ErrUnavailable); err == nil || silent != waits {
					t.Errorf("at once %v: put: %v", hangsAtOnce, err)
				}
			})
		}
		putting.Wait()
		if left := runtime.NumGoroutine() - before; left > 70 {
			t.Errorf("%d goroutines are left", left)
		}
		release()
		waittest.Until(t, "no call hangs and no unfinished file is left", func() bool {
			left, err := filepath.Glob(filepath.Join(dir, "*.tmp"))
			return err == nil && len(left) == 0 && runtime.NumGoroutine()-before <= 2
		})
	}
}
