package attachment

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"email-gateway/shared/blob"
	"email-gateway/shared/keyring"
	"email-gateway/shared/store/file"
	"email-gateway/worker/internal/provider"
)

// oneFile is a Store in which each email has one attachment, whose id is that of the email. It records no missing files.
type oneFile struct{ content []byte }

func (oneFile) MarkMissing(context.Context, uuid.UUID, uuid.UUID) error { return nil }

func (oneFile) ClearMissing(context.Context, uuid.UUID, uuid.UUID) error { return nil }

func (f oneFile) Attachments(_ context.Context, _, owner uuid.UUID) ([]file.Attachment, error) {
	sum := sha256.Sum256(f.content)
	return []file.Attachment{{FileID: owner, Size: int64(len(f.content)), SHA256: sum[:]}}, nil
}

// broken is a Bucket whose every call fails.
type broken struct{ err error }

func (b *broken) Get(context.Context, string) (io.ReadCloser, error) { return nil, b.err }

func (b *broken) Verify(context.Context) error { return b.err }

// loadOne reads the one attachment of an email as the pipeline does.
func loadOne(ctx context.Context, l *Loader, company, owner uuid.UUID) ([]provider.Attachment, error) {
	room, err := l.Reserve(ctx, Need{Company: company, Owner: owner, Count: 1})
	if err != nil {
		return nil, err
	}
	defer room.Release()
	return room.Read(ctx)
}

// Emails that find the storage unavailable keep no part of the budget: after the outage the next one has its turn.
func TestLoad_OutageKeepsNoBudget(t *testing.T) {
	t.Parallel()
	bucket := &broken{err: blob.ErrUnavailable}
	l := New(Params{Store: oneFile{make([]byte, 1<<20)}, Bucket: bucket, Concurrency: func() int { return 8 }})
	load := func() error {
		_, err := loadOne(t.Context(), l, uuid.New(), uuid.New())
		return err
	}
	for range 50 { // the first two read, the others find that they failed
		if err := load(); !errors.Is(err, ErrUnavailable) {
			t.Fatalf("during the outage: %v", err)
		}
	}
	l.outage.failed = l.outage.failed.Add(-restTime)
	bucket.err = blob.ErrNotFound
	var missing *MissingError
	if err := load(); !errors.As(err, &missing) {
		t.Errorf("after the outage: %v", err)
	}
	if l.budget.used != 0 || l.budget.count != 0 || len(l.budget.own) != 0 {
		t.Errorf("%d bytes of %d emails are still held", l.budget.used, l.budget.count)
	}
	for of, p := range l.pacing.lanes {
		if p.running != 0 {
			t.Errorf("company %s has %d emails in flight", of.company, p.running)
		}
	}
}

func ringOf(t *testing.T, id string) keyring.Ring {
	t.Helper()
	ring, err := keyring.Parse(id + ":" + base64.StdEncoding.EncodeToString(make([]byte, 32)))
	if err != nil {
		t.Fatal(err)
	}
	return ring
}

func encrypted(t *testing.T, ring keyring.Ring, company, owner uuid.UUID, content []byte) []byte {
	t.Helper()
	r, err := ring.EncryptReader(bytes.NewReader(content), file.Binding(company, owner))
	if err != nil {
		t.Fatal(err)
	}
	stored, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return stored
}

// The connection to an S3 server is cut while a file is read: the email must wait, since nothing is wrong with the file. A file
// that the server has only a part of is damaged.
func TestLoad_ConnectionCut(t *testing.T) {
	t.Setenv("AWS_ACCESS_KEY_ID", "gateway")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "gateway-secret")
	content, ring, company, owner := make([]byte, 1<<20), ringOf(t, "k"), uuid.New(), uuid.New()
	stored := encrypted(t, ring, company, owner, content)
	for name, c := range map[string]struct {
		cut, truncated int // bytes that arrive, of those that are stored
		want           func(error) bool
	}{
		"whole":                 {len(stored), len(stored), func(err error) bool { return err == nil }},
		"cut in the content":    {len(stored) / 2, len(stored), isUnavailable},
		"cut in the header":     {10, len(stored), isUnavailable},
		"cut at the end":        {len(stored) - 1, len(stored), isUnavailable},
		"truncated":             {len(stored) / 2, len(stored) / 2, isMissing},
		"truncated at the last": {len(stored) - 1, len(stored) - 1, isMissing},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Length", strconv.Itoa(c.truncated))
				w.Header().Set("Last-Modified", time.Now().UTC().Format(http.TimeFormat))
				_, _ = w.Write(stored[:c.cut]) // net/http closes the connection, since more was announced
			}))
			defer server.Close()
			bucket, err := blob.Open(t.Context(), "s3://files?region=us-east-1&s3ForcePathStyle=true&endpoint="+server.URL, blob.Options{})
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = bucket.Close() }()
			l := New(Params{Store: oneFile{content}, Bucket: bucket, Ring: ring, Concurrency: func() int { return 8 }})
			all, err := loadOne(t.Context(), l, company, owner)
			if !c.want(err) {
				t.Errorf("load: %v", err)
			}
			if err == nil && !bytes.Equal(all[0].Content, content) {
				t.Error("other content")
			}
		})
	}
}

func isUnavailable(err error) bool { return errors.Is(err, ErrUnavailable) }

func isMissing(err error) bool {
	var missing *MissingError
	return errors.As(err, &missing)
}

// objects is a Bucket of some files; nil = access to it is denied.
type objects map[string][]byte

func (o objects) Get(_ context.Context, key string) (io.ReadCloser, error) {
	switch stored, ok := o[key]; {
	case !ok:
		return nil, blob.ErrNotFound
	case stored == nil:
		return nil, blob.ErrUnavailable
	default:
		return io.NopCloser(bytes.NewReader(stored)), nil
	}
}

func (o objects) Verify(context.Context) error { return nil }

// Files that cannot be read, each for its own reason, do not keep the emails of others waiting.
func TestLoad_OneFileIsNoOutage(t *testing.T) {
	t.Parallel()
	company, content, ring := uuid.New(), []byte(strings.Repeat("x", 1000)), ringOf(t, "k")
	good, denied, other, lost := uuid.New(), uuid.New(), uuid.New(), []uuid.UUID{uuid.New(), uuid.New()}
	bucket := objects{
		file.Key(company, good):   encrypted(t, ring, company, good, content),
		file.Key(company, denied): nil,
		file.Key(company, other):  nil,
	}
	for _, owner := range lost {
		bucket[file.Key(company, owner)] = encrypted(t, ringOf(t, "lost"), company, owner, content)
	}
	l := New(Params{Store: oneFile{content}, Bucket: bucket, Ring: ring, Concurrency: func() int { return 8 }})
	load := func(owner uuid.UUID) error {
		_, err := loadOne(t.Context(), l, company, owner)
		return err
	}
	for name, owners := range map[string][]uuid.UUID{
		"access is denied to one":        {denied, denied},
		"the key of two is missing":      lost,
		"one denied, and two of no key":  {denied, lost[0], lost[1]},
		"two denied, a success between":  {denied, good, other},
		"two denied, an answer between":  {denied, lost[0], other},
		"two denied, a missing one, too": {denied, uuid.New(), other},
	} {
		for _, owner := range owners {
			if err := load(owner); (err == nil) != (owner == good) {
				t.Errorf("%s: %v", name, err)
			}
		}
		if err := load(good); err != nil {
			t.Errorf("%s: another email cannot be sent: %v", name, err)
		}
	}
	for _, owner := range []uuid.UUID{denied, other, good} { // two files fail in a row: an outage
		if err := load(owner); !errors.Is(err, ErrUnavailable) {
			t.Errorf("in an outage: %v", err)
		}
	}
}

// A body and files take room together, so that the largest email goes alone. A body alone needs no place of those with
// attachments, and no file storage.
func TestReserve_Bodies(t *testing.T) {
	t.Parallel()
	l := New(Params{Store: oneFile{make([]byte, 10<<20)}, Bucket: &broken{err: blob.ErrUnavailable}, Concurrency: func() int { return 4 }})
	l.budget.wait = 1 // no email waits
	company := uuid.New()
	largest, err := l.Reserve(t.Context(), Need{Company: company, Owner: uuid.New(), Count: 1, Body: 1 << 20})
	if err != nil {
		t.Fatalf("the largest email never goes: %v", err)
	}
	var busy *BusyError
	if _, err := l.Reserve(t.Context(), Need{Company: uuid.New(), Owner: uuid.New(), Body: 1 << 20}); !errors.As(err, &busy) {
		t.Errorf("beside the largest email: %v", err)
	}
	largest.Release()
	var rooms []*Room
	for {
		room, err := l.Reserve(t.Context(), Need{Company: company, Owner: uuid.New(), Body: 1 << 20})
		if err != nil {
			break
		}
		if all, err := room.Read(t.Context()); len(all) > 0 || err != nil {
			t.Fatal(all, err)
		}
		rooms = append(rooms, room)
	}
	if n := int64(len(rooms)); n <= 2 || n*weight(0, 1<<20) > budgetBytes/4*ownPart {
		t.Errorf("one company has %d bodies of 1 MiB", n)
	}
	other, err := l.Reserve(t.Context(), Need{Company: uuid.New(), Owner: uuid.New(), Body: 1 << 20})
	if err != nil {
		t.Fatal("one company's bodies leave no room for another's")
	}
	for _, room := range append(rooms, other) {
		room.Release()
		room.Release() // twice does no harm
	}
	if l.budget.used != 0 || l.budget.count != 0 || len(l.budget.own) != 0 {
		t.Errorf("%d bytes and %d places are in use, of %d companies", l.budget.used, l.budget.count, len(l.budget.own))
	}
}

// known is a Store whose one file has been missing for a time, and that counts the records.
type known struct {
	oneFile
	missing         *int64
	marked, cleared int
}

func (k *known) Attachments(ctx context.Context, company, owner uuid.UUID) ([]file.Attachment, error) {
	all, err := k.oneFile.Attachments(ctx, company, owner)
	all[0].MissingMS = k.missing
	return all, err
}

func (k *known) MarkMissing(context.Context, uuid.UUID, uuid.UUID) error {
	k.marked++
	return nil
}

func (k *known) ClearMissing(context.Context, uuid.UUID, uuid.UUID) error {
	k.cleared++
	return nil
}

// A missing or damaged file is recorded, and its emails wait some minutes before they fail. When the file is back, so
// is its record.
func TestLoad_MissingFile(t *testing.T) {
	t.Parallel()
	company, owner, ring, content := uuid.New(), uuid.New(), ringOf(t, "k"), []byte("content")
	key := file.Key(company, owner)
	whole := objects{key: encrypted(t, ring, company, owner, content)}
	since := func(age time.Duration) *int64 { return new(age.Milliseconds()) }
	for name, c := range map[string]struct {
		missing         *int64
		bucket          objects
		delay           time.Duration // < 0 = the email can be sent
		marked, cleared int
	}{
		"gone":                   {bucket: objects{}, delay: missingDelay, marked: 1},
		"damaged":                {bucket: objects{key: []byte("<html>")}, delay: missingDelay, marked: 1},
		"gone for a second":      {missing: since(time.Second), bucket: objects{}, delay: missingDelay},
		"gone for a minute":      {missing: since(time.Minute), bucket: objects{}, delay: time.Minute},
		"gone for four minutes":  {missing: since(4 * time.Minute), bucket: objects{}, delay: time.Minute},
		"gone for long":          {missing: since(missingTime), bucket: objects{}},
		"damaged for long":       {missing: since(time.Hour), bucket: objects{key: []byte("<html>")}},
		"gone, an old record":    {missing: since(2 * time.Hour), bucket: objects{}, delay: missingDelay, marked: 1},
		"there":                  {bucket: whole, delay: -1},
		"back":                   {missing: since(time.Hour), bucket: whole, delay: -1, cleared: 1},
		"access denied for long": {missing: since(time.Hour), bucket: objects{key: nil}, delay: -2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store := &known{oneFile: oneFile{content}, missing: c.missing}
			_, err := loadOne(t.Context(), New(Params{Store: store, Bucket: c.bucket, Ring: ring, Concurrency: func() int { return 8 }}), company, owner)
			missing, is := errors.AsType[*MissingError](err)
			switch {
			case c.delay == -1 && err != nil, c.delay == -2 && !isUnavailable(err), is != (c.delay >= 0):
				t.Errorf("load: %v", err)
			case is && missing.Delay != c.delay:
				t.Errorf("the email is due after %v, want %v", missing.Delay, c.delay)
			}
			if store.marked != c.marked || store.cleared != c.cleared {
				t.Errorf("marked %d times, cleared %d times", store.marked, store.cleared)
			}
		})
	}
}

// owned is an installation whose storage is marked with its id.
type owned struct{ id uuid.UUID }

func (o owned) Installation(context.Context) (uuid.UUID, bool, error) { return o.id, true, nil }

// On a host where the disk with the files is not mounted, emails wait. A file that is missing in the right storage fails its
// email.
func TestLoad_WrongStorage(t *testing.T) {
	t.Parallel()
	root, owner := t.TempDir(), owned{uuid.New()}
	bucket, err := blob.Open(t.Context(), "file://"+root, blob.Options{Owner: owner})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = bucket.Close() }()
	load := func() error {
		l := New(Params{Store: oneFile{[]byte("x")}, Bucket: bucket, Ring: ringOf(t, "k"), Concurrency: func() int { return 8 }})
		_, err := loadOne(t.Context(), l, uuid.New(), uuid.New())
		return err
	}
	if err := load(); !isUnavailable(err) {
		t.Errorf("an empty folder: %v", err)
	}
	if err := os.WriteFile(filepath.Join(root, "installation"), []byte(owner.id.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := load(); !isMissing(err) {
		t.Errorf("the right folder: %v", err)
	}
}

// A proxy in front of an S3 server answers each request with a page of its own: the storage is not available, and no
// file is damaged.
func TestLoad_ProxyPage(t *testing.T) {
	t.Setenv("AWS_ACCESS_KEY_ID", "gateway")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "gateway-secret")
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Last-Modified", time.Now().UTC().Format(http.TimeFormat))
		_, _ = io.WriteString(w, "<html>We are back soon.</html>")
	}))
	defer server.Close()
	bucket, err := blob.Open(t.Context(), "s3://files?region=us-east-1&s3ForcePathStyle=true&endpoint="+server.URL, blob.Options{Owner: owned{uuid.New()}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = bucket.Close() }()
	store := &known{oneFile: oneFile{[]byte("content")}}
	l := New(Params{Store: store, Bucket: bucket, Ring: ringOf(t, "k"), Concurrency: func() int { return 8 }})
	if _, err := loadOne(t.Context(), l, uuid.New(), uuid.New()); !isUnavailable(err) || store.marked != 0 {
		t.Errorf("load: %v; %d files are recorded as missing", err, store.marked)
	}
}

// slow is a Bucket whose reads take longer than their caller waits.
type slow struct{ broken }

func (slow) Get(ctx context.Context, _ string) (io.ReadCloser, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// Large files on a slow storage are no outage: the emails of others are tried.
func TestLoad_SlowIsNoOutage(t *testing.T) {
	t.Parallel()
	l := New(Params{Store: oneFile{[]byte("x")}, Bucket: &slow{}, Concurrency: func() int { return 8 }})
	l.readTime = time.Millisecond
	for range 3 {
		_, err := loadOne(t.Context(), l, uuid.New(), uuid.New())
		if _, notTried := errors.AsType[*NotTriedError](err); !isUnavailable(err) || notTried {
			t.Errorf("load: %v", err)
		}
	}
}

// Of the emails that meet an outage, those for which the storage was not tried have an error of their own: they are not
// logged one by one, and come back less often the longer it lasts.
func TestLoad_NotTried(t *testing.T) {
	t.Parallel()
	l := New(Params{Store: oneFile{[]byte("x")}, Bucket: &broken{err: blob.ErrUnavailable}, Concurrency: func() int { return 8 }})
	load := func() (delay time.Duration, tried bool) {
		_, err := loadOne(t.Context(), l, uuid.New(), uuid.New())
		notTried, ok := errors.AsType[*NotTriedError](err)
		switch {
		case !errors.Is(err, ErrUnavailable):
			t.Errorf("in an outage: %v", err)
		case ok:
			return notTried.Delay, false
		}
		return 0, true
	}
	for i := range 5 {
		if delay, tried := load(); tried != (i < 2) || !tried && delay != minOutageDelay {
			t.Errorf("email %d: tried %v, delay %v", i, tried, delay)
		}
	}
	for _, lasting := range []time.Duration{time.Minute, time.Hour} {
		l.outage.began = time.Now().Add(-lasting)
		if delay, tried := load(); tried || delay < min(lasting, maxOutageDelay) || delay > maxOutageDelay {
			t.Errorf("after %v: tried %v, delay %v", lasting, tried, delay)
		}
	}
}
