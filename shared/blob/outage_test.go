package blob_test

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"email-gateway/shared/blob"
	"email-gateway/shared/blob/blobtest"
)

// A server crashes during an upload: nothing is stored, all operations return ErrUnavailable, and
// they work again when the server is back.
func TestServerKilled(t *testing.T) {
	t.Parallel()
	server := blobtest.Start(t)
	b := open(t, server.URL)
	if err := b.Put(t.Context(), "mailings/whole.csv", io.LimitReader(endless{}, 30*mib)); err != nil {
		t.Fatal(err)
	}
	half, err := b.Get(t.Context(), "mailings/whole.csv")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = half.Close() }()

	kill := func() error { server.Kill(); return nil }
	err = b.Put(t.Context(), "mailings/new.csv", io.MultiReader(io.LimitReader(endless{}, 22*mib), &calling{f: kill}, io.LimitReader(endless{}, 20*mib)))
	if !errors.Is(err, blob.ErrUnavailable) || !strings.Contains(err.Error(), "put mailings/new.csv") {
		t.Errorf("put: %v", err)
	}
	if _, err := io.Copy(io.Discard, half); !errors.Is(err, blob.ErrUnavailable) {
		t.Errorf("reading an open file: %v", err)
	}
	var asking sync.WaitGroup
	for name, ask := range operations(b) {
		asking.Go(func() {
			if err := ask(t.Context()); !errors.Is(err, blob.ErrUnavailable) || errors.Is(err, blob.ErrNotFound) {
				t.Errorf("%s: %v", name, err)
			}
		})
	}
	asking.Wait()
	open(t, server.URL) // which does not need the server

	server.Start()
	if got := keys(list(t, b, "")); !slices.Equal(got, []string{"mailings/whole.csv"}) {
		t.Errorf("stored: %v", got)
	}
	for _, tt := range []struct {
		prefix string
		before time.Time
		want   int
	}{
		{"mailings/", time.Now().Add(-time.Minute), 0},
		{"other/", time.Now().Add(time.Hour), 0},
		{"mailings/", time.Now().Add(time.Hour), 1},
		{"mailings/", time.Now().Add(time.Hour), 0},
	} {
		if n, err := b.DropUnfinished(t.Context(), tt.prefix, tt.before); n != tt.want || err != nil {
			t.Errorf("dropped %d unfinished uploads below %s, want %d (%v)", n, tt.prefix, tt.want, err)
		}
	}
	if err := b.Put(t.Context(), "mailings/new.csv", io.LimitReader(endless{}, 22*mib)); err != nil {
		t.Errorf("put again: %v", err)
	}
}

// With a hanging server, calls end at the caller's timeout.
func TestServerFrozen(t *testing.T) {
	t.Parallel()
	server := blobtest.Start(t)
	b := open(t, server.URL)
	server.Freeze()
	t.Cleanup(server.Thaw)
	var asking sync.WaitGroup
	for name, ask := range operations(b) {
		asking.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
			defer cancel()
			start := time.Now()
			err := ask(ctx)
			if !errors.Is(err, blob.ErrUnavailable) || !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%s: %v", name, err)
			}
			if took := time.Since(start); took > time.Minute {
				t.Errorf("%s took %s", name, took)
			}
		})
	}
	asking.Wait()
}

// A server that hangs before the header of a response, or within a file, ends the read, although the caller would
// wait for minutes.
func TestServerFrozen_Reads(t *testing.T) {
	t.Parallel()
	server := blobtest.Start(t)
	b := open(t, server.URL)
	if err := b.Put(t.Context(), "mailings/whole.csv", io.LimitReader(endless{}, 60*mib)); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	half, err := b.Get(ctx, "mailings/whole.csv")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = half.Close() }()
	if _, err := io.CopyN(io.Discard, half, mib); err != nil {
		t.Fatal(err)
	}
	server.Freeze()
	t.Cleanup(server.Thaw)
	var asking sync.WaitGroup
	for name, ask := range map[string]func() error{
		"get":  func() error { _, err := b.Get(ctx, "mailings/whole.csv"); return err },
		"read": func() error { _, err := io.Copy(io.Discard, half); return err },
	} {
		asking.Go(func() {
			err := ask()
			if !errors.Is(err, blob.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
				t.Errorf("%s: %v", name, err)
			}
		})
	}
	asking.Wait()
	if _, err := half.Read(make([]byte, 1)); !errors.Is(err, blob.ErrUnavailable) {
		t.Errorf("read after that: %v", err)
	}
	server.Thaw()
	r, err := b.Get(ctx, "mailings/whole.csv")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Close() }()
	if n, err := io.Copy(io.Discard, r); err != nil || n != 60*mib {
		t.Errorf("read %d bytes afterwards: %v", n, err)
	}
}

// A missing bucket is not reported as a missing file, which a caller would take as final.
func TestServerWithoutBucket(t *testing.T) {
	t.Parallel()
	b := open(t, strings.Replace(blobtest.Shared(t), "s3://email-gateway?", "s3://never-created?", 1))
	for name, ask := range operations(b) {
		if name == "delete" { // S3 does not distinguish the two for a single file
			continue
		}
		if err := ask(t.Context()); !errors.Is(err, blob.ErrUnavailable) || errors.Is(err, blob.ErrNotFound) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// operations has one of each, on keys that do not exist.
func operations(b *blob.Bucket) map[string]func(ctx context.Context) error {
	return map[string]func(ctx context.Context) error{
		"ping":   b.Ping,
		"put":    func(ctx context.Context) error { return b.Put(ctx, "mailings/small.csv", strings.NewReader("x")) },
		"delete": func(ctx context.Context) error { return b.Delete(ctx, "mailings/small.csv") },
		"get":    func(ctx context.Context) error { _, err := b.Get(ctx, "mailings/small.csv"); return err },
		"list": func(ctx context.Context) (err error) {
			for _, err = range b.List(ctx, "mailings/") {
			}
			return err
		},
		"drop": func(ctx context.Context) error {
			_, err := b.DropUnfinished(ctx, "mailings/", time.Now())
			return err
		},
	}
}
