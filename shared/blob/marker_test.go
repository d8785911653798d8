package blob_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"email-gateway/shared/blob"
	"email-gateway/shared/blob/blobtest"
)

// installation is the database of an installation.
type installation struct {
	id uuid.UUID

	mu      sync.Mutex
	marked  bool
	refusal string   // of a storage without a marker
	keys    []string // that were compared with the database
}

func (i *installation) Installation(context.Context) (uuid.UUID, bool, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.id, i.marked, nil
}

func (i *installation) MayClaim(_ context.Context, keys []string) (string, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.keys = keys
	return i.refusal, nil
}

func (i *installation) RecordMarked(context.Context) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.marked = true
	return nil
}

// openAs opens a storage as the api, which marks it, or as another program.
func openAs(t *testing.T, url string, o blob.Options) *blob.Bucket {
	t.Helper()
	b, err := blob.Open(t.Context(), url, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	return b
}

// emptyStorages runs the test with two empty storages of each kind.
func emptyStorages(t *testing.T, test func(t *testing.T, right, wrong string)) {
	t.Helper()
	t.Run("folder", func(t *testing.T) {
		t.Parallel()
		wrong := t.TempDir()
		test(t, "file://"+t.TempDir()+"/files", "file://"+wrong)
	})
	t.Run("s3", func(t *testing.T) {
		t.Parallel()
		test(t, blobtest.Start(t).URL, blobtest.Start(t).URL)
	})
}

// A program whose STORAGE_URL names another storage than its api's finds no file and deletes none: it reports an outage.
func TestWrongStorage(t *testing.T) {
	t.Parallel()
	emptyStorages(t, func(t *testing.T, right, wrong string) {
		ours, others := &installation{id: uuid.New()}, &installation{id: uuid.New()}
		api := openAs(t, right, blob.Options{Owner: ours, Claim: ours})
		if err := api.Put(t.Context(), "files/a", strings.NewReader("x")); err != nil || !ours.marked {
			t.Fatalf("marked: %v, %v", ours.marked, err)
		}
		worker := openAs(t, right, blob.Options{Owner: ours})
		if string(get(t, worker, "files/a")) != "x" {
			t.Error("other content")
		}
		if _, err := worker.Get(t.Context(), "files/b"); !errors.Is(err, blob.ErrNotFound) {
			t.Errorf("get a missing file from the right storage: %v", err)
		}

		var logged bytes.Buffer
		lost := openAs(t, wrong, blob.Options{Owner: ours, Log: slog.New(slog.NewTextHandler(&logged, nil))})
		for _, state := range []string{"no marker", "marker of another installation"} {
			for name, ask := range operations(lost) {
				err := ask(t.Context())
				if !errors.Is(err, blob.ErrUnavailable) || errors.Is(err, blob.ErrNotFound) || !strings.Contains(err.Error(), "STORAGE_URL does not name the storage of this installation") {
					t.Errorf("%s: %s: %v", state, name, err)
				}
			}
			if err := lost.PingRead(t.Context()); err == nil || !strings.Contains(err.Error(), ours.id.String()) || strings.Contains(err.Error(), "127.0.0.1") {
				t.Errorf("%s: ping: %v", state, err)
			}
			other := openAs(t, wrong, blob.Options{Owner: others, Claim: others})
			if err := other.Put(t.Context(), "files/a", strings.NewReader("y")); err != nil {
				t.Fatal(err)
			}
		}
		if n := strings.Count(logged.String(), "\n"); n != 1 {
			t.Errorf("logged %d lines: %s", n, logged.String())
		}
		if _, err := worker.Get(t.Context(), "files/b"); !errors.Is(err, blob.ErrNotFound) {
			t.Errorf("the other installation has changed this one's storage: %v", err)
		}
		// Neither do programs of an installation that has marked no storage yet, such as a copy that was given an id of its own.
		fresh := openAs(t, wrong, blob.Options{Owner: &installation{id: uuid.New()}})
		if err := fresh.Delete(t.Context(), "files/a"); !errors.Is(err, blob.ErrUnavailable) {
			t.Errorf("a program deletes from the storage of another installation: %v", err)
		}
		second := openAs(t, wrong, blob.Options{Owner: ours, Claim: ours})
		if err := second.Put(t.Context(), "files/c", strings.NewReader("x")); !errors.Is(err, blob.ErrUnavailable) {
			t.Errorf("the api writes into the storage of another installation: %v", err)
		}
		if got := keys(list(t, openAs(t, wrong, blob.Options{}), "")); len(got) != 1 {
			t.Errorf("the other installation's storage contains %v", got)
		}
	})
}

// Until the api has marked the storage, as while an update replaces one program after the other, programs use it as the
// previous release does.
func TestUnmarkedStorage(t *testing.T) {
	t.Parallel()
	emptyStorages(t, func(t *testing.T, right, _ string) {
		if err := openAs(t, right, blob.Options{}).Put(t.Context(), "files/a", strings.NewReader("x")); err != nil {
			t.Fatal(err)
		}
		ours := &installation{id: uuid.New()}
		worker := openAs(t, right, blob.Options{Owner: ours})
		if _, err := worker.Get(t.Context(), "files/b"); !errors.Is(err, blob.ErrNotFound) {
			t.Errorf("get: %v", err)
		}
		if err := errors.Join(worker.Delete(t.Context(), "files/b"), worker.PingRead(t.Context()), worker.Ping(t.Context())); err != nil {
			t.Error(err)
		}

		// An api that finds another storage does not mark it and does not write into it.
		ours.refusal = "it looks strange"
		api := openAs(t, right, blob.Options{Owner: ours, Claim: ours})
		for name, err := range map[string]error{"ping": api.Ping(t.Context()), "put": api.Put(t.Context(), "files/b", strings.NewReader("x"))} {
			if !errors.Is(err, blob.ErrUnavailable) || !strings.Contains(err.Error(), "it looks strange") || !strings.Contains(err.Error(), "store the text "+ours.id.String()) {
				t.Errorf("%s: %v", name, err)
			}
		}
		if ours.marked || len(ours.keys) != 1 || ours.keys[0] != "files/a" {
			t.Errorf("marked: %v, compared %v", ours.marked, ours.keys)
		}
		ours.refusal = ""
		if err := api.Ping(t.Context()); err != nil || !ours.marked {
			t.Errorf("marked: %v, %v", ours.marked, err)
		}
		if got := keys(list(t, worker, "")); len(got) != 1 {
			t.Errorf("the list shows the marker: %v", got)
		}
	})
}

// Checks at the same time, as of two apis that start, may all find no marker: one of them marks the storage, and no
// other one fails because it is marked.
func TestMarker_ChecksAtTheSameTime(t *testing.T) {
	t.Parallel()
	emptyStorages(t, func(t *testing.T, right, _ string) {
		at := &installation{id: uuid.New()}
		first := openAs(t, right, blob.Options{Owner: at, Claim: at})
		late := &marksMeanwhile{installation: at, mark: func() error { return first.Ping(t.Context()) }}
		second := openAs(t, right, blob.Options{Owner: late, Claim: late})
		if err := second.Ping(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// marksMeanwhile is an installation whose storage another check marks between the read of the marker and the comparison
// of the files.
type marksMeanwhile struct {
	*installation
	mark func() error
}

func (m *marksMeanwhile) MayClaim(context.Context, []string) (string, error) {
	return "a storage has been marked before", m.mark()
}

// An operator marks a storage by hand, and the api marks it again when the marker is missing.
func TestMarkerByHand(t *testing.T) {
	t.Parallel()
	root, ours := t.TempDir(), &installation{id: uuid.New(), refusal: "it looks strange"}
	api := openAs(t, "file://"+root, blob.Options{Owner: ours, Claim: ours})
	if err := api.Ping(t.Context()); err == nil {
		t.Fatal("the api has marked a storage that it refuses")
	}
	marker := filepath.Join(root, "installation")
	if err := os.WriteFile(marker, []byte(ours.id.String()+"\r\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := api.Ping(t.Context()); err != nil || !ours.marked {
		t.Errorf("marked: %v, %v", ours.marked, err)
	}
	ours.refusal = ""
	if err := os.Remove(marker); err != nil {
		t.Fatal(err)
	}
	worker := openAs(t, "file://"+root, blob.Options{Owner: ours})
	if err := worker.PingRead(t.Context()); !errors.Is(err, blob.ErrUnavailable) {
		t.Errorf("a worker accepts a storage without a marker: %v", err)
	}
	if err := errors.Join(api.Ping(t.Context()), worker.PingRead(t.Context())); err != nil {
		t.Error(err)
	}
}

// Only the api creates the folder.
func TestFolder_NotCreatedByReaders(t *testing.T) {
	t.Parallel()
	root, ours := filepath.Join(t.TempDir(), "files"), &installation{id: uuid.New()}
	worker := openAs(t, "file://"+root, blob.Options{Owner: ours})
	for name, ask := range operations(worker) {
		if name == "drop" { // there is nothing to drop
			continue
		}
		if err := ask(t.Context()); !errors.Is(err, blob.ErrUnavailable) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := worker.PingRead(t.Context()); !errors.Is(err, blob.ErrUnavailable) {
		t.Errorf("ping: %v", err)
	}
	if _, err := os.Stat(root); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a worker has created the folder: %v", err)
	}
}

// Between two checks of an S3 bucket no request is added.
func TestMarker_NotReadEachTime(t *testing.T) {
	t.Parallel()
	ours := &counted{installation: installation{id: uuid.New()}}
	b := openAs(t, blobtest.Start(t).URL, blob.Options{Owner: ours})
	start := time.Now()
	for range 5 {
		if err := b.Delete(t.Context(), "files/a"); err != nil {
			t.Fatal(err)
		}
	}
	if time.Since(start) < 10*time.Second && ours.asked != 1 {
		t.Errorf("checked %d times", ours.asked)
	}
}

type counted struct {
	installation
	asked int
}

func (c *counted) Installation(ctx context.Context) (uuid.UUID, bool, error) {
	c.asked++
	return c.installation.Installation(ctx)
}

// An api whose S3 policy denies the marker or the list uses the bucket as before, and says once what it needs.
func TestMarker_Denied(t *testing.T) {
	t.Parallel()
	for name, denied := range map[string]func(*http.Request) bool{
		"missing objects": func(r *http.Request) bool {
			return r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, "/installation")
		},
		"list": func(r *http.Request) bool { return r.Method == http.MethodGet && r.URL.Query().Has("list-type") },
		"put": func(r *http.Request) bool {
			return r.Method == http.MethodPut && strings.HasSuffix(r.URL.Path, "/installation")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var logged bytes.Buffer
			ours := &installation{id: uuid.New()}
			b := openAs(t, denying(t, blobtest.Start(t).URL, denied), blob.Options{Owner: ours, Claim: ours, Log: slog.New(slog.NewTextHandler(&logged, nil))})
			for range 2 {
				if err := errors.Join(b.Put(t.Context(), "files/a", strings.NewReader("x")), b.Ping(t.Context())); err != nil {
					t.Fatal(err)
				}
			}
			if string(get(t, b, "files/a")) != "x" || ours.marked {
				t.Errorf("marked: %v", ours.marked)
			}
			if n := strings.Count(logged.String(), "s3:ListBucket"); n != 1 || strings.Count(logged.String(), "\n") != 1 {
				t.Errorf("logged: %s", logged.String())
			}
		})
	}
}

// denying returns the URL of a proxy that denies some requests to an S3 server.
func denying(t *testing.T, storage string, denied func(*http.Request) bool) string {
	t.Helper()
	at, err := url.Parse(storage)
	if err != nil {
		t.Fatal(err)
	}
	query := at.Query()
	server, err := url.Parse(query.Get("endpoint"))
	if err != nil || server.Host == "" {
		t.Fatalf("%s: %v", storage, err)
	}
	forward := httputil.NewSingleHostReverseProxy(server)
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if denied(r) {
			w.WriteHeader(http.StatusForbidden)
			_, _ = io.WriteString(w, `<Error><Code>AccessDenied</Code><Message>Access Denied</Message></Error>`)
			return
		}
		forward.ServeHTTP(w, r)
	}))
	t.Cleanup(proxy.Close)
	query.Set("endpoint", proxy.URL)
	at.RawQuery = query.Encode()
	return at.String()
}
