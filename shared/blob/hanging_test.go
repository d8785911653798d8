package blob_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"

	"email-gateway/shared/blob"
	"email-gateway/shared/waittest"
)

// hang makes opening the file block, as on a network disk whose server does not answer, until the test ends.
func hang(t *testing.T, path string) {
	t.Helper()
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // a writer lets all readers go on
		if w, err := os.OpenFile(path, os.O_RDWR, 0); err == nil {
			_ = w.Close()
		}
	})
}

// Checks of a folder that hangs do not pile up, and each ends with its context.
func TestFolderHangs_Ping(t *testing.T) { // not parallel: it counts goroutines
	root, ours := t.TempDir(), &installation{id: uuid.New(), marked: true}
	hang(t, filepath.Join(root, "installation"))
	b := openAs(t, "file://"+root, blob.Options{Owner: ours})
	before := runtime.NumGoroutine()
	for range 25 {
		for _, ping := range []func(context.Context) error{b.Ping, b.PingRead} {
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
			if err := ping(ctx); !errors.Is(err, blob.ErrUnavailable) || !errors.Is(err, context.DeadlineExceeded) {
				t.Fatal(err)
			}
			cancel()
		}
	}
	waittest.Until(t, "at most 2 goroutines are left", func() bool { return runtime.NumGoroutine()-before <= 2 })
}

// Files that hang fail, without holding up other files, and however many they are.
func TestFolderHangs_Get(t *testing.T) { // not parallel: it counts goroutines
	root := t.TempDir()
	b := open(t, "file://"+root)
	if err := b.Put(t.Context(), "files/good", strings.NewReader("x")); err != nil {
		t.Fatal(err)
	}
	hang(t, filepath.Join(root, "files", "hangs"))
	before := runtime.NumGoroutine()
	start := time.Now()
	var asking sync.WaitGroup
	for i := range 200 {
		asking.Go(func() {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if i > 0 { // one waits for as long as the storage may be silent
				time.AfterFunc(time.Second, cancel)
			}
			_, err := b.Get(ctx, "files/hangs")
			if silent := errors.Is(err, blob.ErrUnavailable); err == nil || silent != (i == 0) {
				t.Errorf("get: %v", err)
			}
		})
		if i == 20 {
			if got := get(t, b, "files/good"); string(got) != "x" {
				t.Errorf("another file: %q", got)
			}
		}
	}
	asking.Wait()
	waittest.Until(t, "at most 70 goroutines are left", func() bool { return runtime.NumGoroutine()-before <= 70 })
	if took := time.Since(start); took > time.Minute {
		t.Errorf("it took %v", took)
	}
}

// A read that hangs in the middle of a file ends, too, and what it returns later does not reach the caller's buffer.
func TestFolderHangs_Read(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	b := open(t, "file://"+root)
	path := filepath.Join(root, "hangs")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	w, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	r, err := b.Get(ctx, "hangs")
	if err != nil {
		t.Fatal(err)
	}
	into := make([]byte, 100)
	if n, err := r.Read(into); err == nil {
		t.Errorf("read %d bytes", n)
	} else if !errors.Is(err, blob.ErrUnavailable) || ctx.Err() != nil {
		t.Errorf("read: %v", err)
	}
	if _, err := w.Write(bytes.Repeat([]byte("x"), 100)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadAll(r); !errors.Is(err, blob.ErrUnavailable) {
		t.Errorf("read after that: %v", err)
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	if into[0] != 0 {
		t.Error("the buffer has changed")
	}
}
