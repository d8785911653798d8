package blob_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"email-gateway/shared/blob"
	"email-gateway/shared/blob/blobtest"
)

const mib = 1 << 20

// storages runs the test with a folder and with the shared S3 server. prefix ends with a slash and
// is unique to the test.
func storages(t *testing.T, test func(t *testing.T, b *blob.Bucket, prefix string)) {
	t.Helper()
	for name, url := range map[string]string{"folder": "file://" + t.TempDir() + "/files", "s3": blobtest.Shared(t)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, prefix := open(t, url), uuid.NewString()+"/"
			t.Cleanup(func() { empty(t, b, prefix) })
			test(t, b, prefix)
		})
	}
}

func TestPutAndGet(t *testing.T) {
	t.Parallel()
	storages(t, func(t *testing.T, b *blob.Bucket, prefix string) {
		start := time.Now()
		key := prefix + "file.csv"
		for _, size := range []int{0, 1, 5*mib - 1, 5 * mib, 5*mib + 1, 12 * mib} { // each replaces the previous one
			content := randomBytes(size)
			if err := b.Put(t.Context(), key, bytes.NewReader(content)); err != nil {
				t.Fatalf("%d bytes: %v", size, err)
			}
			if !bytes.Equal(get(t, b, key), content) {
				t.Errorf("%d bytes: Get returned other content", size)
			}
			stored := list(t, b, prefix)
			if len(stored) != 1 || stored[0].Key != key || stored[0].Size != int64(size) {
				t.Errorf("%d bytes: listed %+v", size, stored)
			} else if age := stored[0].ModTime.Sub(start); age < -2*time.Second || age > time.Minute {
				t.Errorf("%d bytes: stored %s after it began", size, age)
			}
		}
		for range 2 {
			if err := b.Delete(t.Context(), key); err != nil {
				t.Errorf("delete: %v", err)
			}
		}
		if _, err := b.Get(t.Context(), key); !errors.Is(err, blob.ErrNotFound) || !strings.Contains(err.Error(), "get "+key) {
			t.Errorf("Get after Delete = %v, want ErrNotFound", err)
		}
		if err := b.Ping(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

var errBroken = errors.New("the sender hung up")

func TestPut_ReaderFails(t *testing.T) {
	t.Parallel()
	storages(t, func(t *testing.T, b *blob.Bucket, prefix string) {
		kept := prefix + "kept.csv"
		if err := b.Put(t.Context(), kept, strings.NewReader("the first version")); err != nil {
			t.Fatal(err)
		}
		for _, size := range []int64{0, 1000, 5 * mib, 13 * mib} {
			for _, key := range []string{kept, prefix + "new.csv"} {
				err := b.Put(t.Context(), key, io.MultiReader(io.LimitReader(endless{}, size), failing{errBroken}))
				if !errors.Is(err, errBroken) || errors.Is(err, blob.ErrUnavailable) {
					t.Errorf("failed after %d bytes: %v", size, err)
				}
			}
		}
		if got := string(get(t, b, kept)); got != "the first version" {
			t.Errorf("a failed Put has stored %.100q", got)
		}
		nothingElse(t, b, prefix, kept)
	})
}

func TestPut_Cancelled(t *testing.T) {
	t.Parallel()
	storages(t, func(t *testing.T, b *blob.Bucket, prefix string) {
		for _, size := range []int64{0, 1000, 13 * mib} {
			ctx, cancel := context.WithCancel(t.Context())
			end := func() error { cancel(); return nil }
			on := func() error { t.Error("Put reads after its context ended"); return nil }
			err := b.Put(ctx, prefix+"new.csv", io.MultiReader(io.LimitReader(endless{}, size), &calling{f: end}, strings.NewReader("x"), &calling{f: on}))
			if !errors.Is(err, context.Canceled) || errors.Is(err, blob.ErrUnavailable) {
				t.Errorf("cancelled after %d bytes: %v", size, err)
			}
		}
		nothingElse(t, b, prefix)
	})
}

func TestList(t *testing.T) {
	t.Parallel()
	storages(t, func(t *testing.T, b *blob.Bucket, prefix string) {
		const files = 60
		b.SetPage(7)
		var want []string
		var putting errgroup.Group
		putting.SetLimit(16)
		for n := range files {
			key := fmt.Sprintf("%sa/%d/%d.csv", prefix, n%3, n)
			want = append(want, key)
			putting.Go(func() error { return b.Put(t.Context(), key, strings.NewReader("x")) })
		}
		for _, key := range []string{"ab.csv", "b/1.csv"} {
			putting.Go(func() error { return b.Put(t.Context(), prefix+key, strings.NewReader("x")) })
		}
		if err := putting.Wait(); err != nil {
			t.Fatal(err)
		}
		slices.Sort(want)
		if diff := cmp.Diff(want, keys(list(t, b, prefix+"a/"))); diff != "" {
			t.Error(diff)
		}
		if n := len(list(t, b, prefix+"a")); n != files+1 {
			t.Errorf("%d files begin with a", n)
		}
		if n := len(list(t, b, prefix+"c")); n != 0 {
			t.Errorf("%d files begin with c", n)
		}
		for object, err := range b.List(t.Context(), prefix) { // a caller may stop iterating
			if err != nil || object.Key == want[0] {
				break
			}
		}
	})
}

func TestKeys(t *testing.T) {
	t.Parallel()
	b := open(t, "file://"+t.TempDir())
	for _, key := range []string{
		"", "/", "/etc/passwd", "a/", "a//b", "..", "../a", "a/../b", "a/..", ".hidden", "a/.b", "a b", "a\x00", "ä", `a\b`,
		strings.Repeat("a", 201), strings.Repeat("a/", 256) + "a", "a.csv.1.tmp", "a.csv.attrs", "installation",
	} {
		_, err := b.Get(t.Context(), key)
		for name, err := range map[string]error{
			"get": err, "put": b.Put(t.Context(), key, strings.NewReader("x")), "delete": b.Delete(t.Context(), key),
		} {
			if err == nil || errors.Is(err, blob.ErrNotFound) || errors.Is(err, blob.ErrUnavailable) {
				t.Errorf("%s %.30q: %v", name, key, err)
			}
		}
	}
	for _, err := range b.List(t.Context(), "../") {
		if err == nil {
			t.Error("List accepts a prefix outside the storage")
		}
	}
	if _, err := b.DropUnfinished(t.Context(), "../", time.Now()); err == nil {
		t.Error("DropUnfinished accepts a prefix outside the storage")
	}
}

// 100 MB pass through a bounded buffer. Not parallel: it measures the memory of the process.
func TestPut_Memory(t *testing.T) {
	for name, tt := range map[string]struct {
		url   string
		limit uint64
	}{
		"folder": {"file://" + t.TempDir(), 2 * mib},
		"s3":     {blobtest.Shared(t), 25 * mib},
	} {
		t.Run(name, func(t *testing.T) {
			b, key := open(t, tt.url), uuid.NewString()+".csv"
			defer func() { _ = b.Delete(t.Context(), key) }()
			var before, now runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&before)
			var most uint64
			look := func() error {
				runtime.GC()
				runtime.ReadMemStats(&now)
				most = max(most, now.HeapAlloc)
				return nil
			}
			var parts []io.Reader
			for range 25 {
				parts = append(parts, io.LimitReader(endless{}, 4*mib), &calling{f: look})
			}
			if err := b.Put(t.Context(), key, io.MultiReader(parts...)); err != nil {
				t.Fatal(err)
			}
			if most > before.HeapAlloc+tt.limit {
				t.Errorf("%d MiB more in use", (most-before.HeapAlloc)/mib)
			}
			t.Logf("at most %d KiB more in use", (int64(most)-int64(before.HeapAlloc))/1024)
			if stored := list(t, b, key); len(stored) != 1 || stored[0].Size != 100*mib {
				t.Errorf("stored %+v", stored)
			}
		})
	}
}

// --- helpers

func open(t *testing.T, url string) *blob.Bucket {
	t.Helper()
	b, err := blob.Open(t.Context(), url, blob.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	return b
}

func get(t *testing.T, b *blob.Bucket, key string) []byte {
	t.Helper()
	r, err := b.Get(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Close() }()
	content, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return content
}

func list(t *testing.T, b *blob.Bucket, prefix string) (objects []blob.Object) {
	t.Helper()
	for object, err := range b.List(t.Context(), prefix) {
		if err != nil {
			t.Fatal(err)
		}
		objects = append(objects, object)
	}
	return objects
}

func keys(objects []blob.Object) (keys []string) {
	for _, o := range objects {
		keys = append(keys, o.Key)
	}
	slices.Sort(keys) // a folder lists them in its own order
	return keys
}

// nothingElse fails if there is anything but the keys below the prefix, including files that List
// does not show.
func nothingElse(t *testing.T, b *blob.Bucket, prefix string, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, keys(list(t, b, prefix))); diff != "" {
		t.Errorf("stored: %s", diff)
	}
	n, err := b.DropUnfinished(t.Context(), prefix, time.Now().Add(time.Hour))
	if n != 0 || err != nil {
		t.Errorf("%d unfinished uploads were left behind (%v)", n, err)
	}
}

func empty(t *testing.T, b *blob.Bucket, prefix string) {
	ctx := context.WithoutCancel(t.Context())
	for object, err := range b.List(ctx, prefix) {
		if err == nil {
			err = b.Delete(ctx, object.Key)
		}
		if err != nil {
			t.Errorf("clean up: %v", err)
			return
		}
	}
}

func randomBytes(n int) []byte {
	content := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{byte(n)}).Read(content)
	return content
}

// endless yields zeros.
type endless struct{}

func (endless) Read(p []byte) (int, error) { clear(p); return len(p), nil }

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

// calling returns an empty reader that calls f when it is read.
type calling struct{ f func() error }

func (c *calling) Read([]byte) (int, error) {
	if err := c.f(); err != nil {
		return 0, err
	}
	return 0, io.EOF
}
