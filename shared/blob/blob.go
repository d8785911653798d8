// Package blob stores files under keys: the uploaded CSV files of mailings and the attachments of emails, in a folder or on
// any S3 server. A URL selects the storage (see CheckURL). Content should be encrypted already: this package stores the bytes
// unchanged.
//
// A Bucket does not connect before its first use, so a storage outage affects only operations on
// it.
//
// A storage has a marker, an object that names the installation to which it belongs. With another storage than its
// installation's, such as the empty folder of a disk that is not mounted, a Bucket returns ErrUnavailable: it neither reports
// a file as missing nor changes anything. See Options.
package blob

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"strings"
	"time"

	"gocloud.dev/blob"
)

var (
	// ErrNotFound: no file is stored under the key.
	ErrNotFound = errors.New("not found in the storage")
	// ErrUnavailable: the storage cannot be reached, denies access, is full, or is not the installation's. Retrying later
	// may help.
	ErrUnavailable = errors.New("storage unavailable")
)

// contentType is the content type of all files: they are not for browsers.
const contentType = "application/octet-stream"

// Bucket is a storage. It is safe for concurrent use.
type Bucket struct {
	storage
	marking
	calls  calls
	checks checks
	base   string // URL of the key ""
}

// Object is one stored file.
type Object struct {
	Key     string
	Size    int64     // bytes
	ModTime time.Time // by the storage's clock; on S3 the start of the upload
}

// storage has the operations that differ between a folder and an S3 server.
type storage interface {
	bucket() (*blob.Bucket, error)
	put(ctx context.Context, key string, r io.Reader) error
	ping(ctx context.Context) error
	pingRead(ctx context.Context) error
	// list calls yield for each file, the marker and unfinished ones possibly among them, until yield returns false.
	list(ctx context.Context, prefix string, yield func(Object) bool) error
	dropUnfinished(ctx context.Context, prefix string, before time.Time) (int, error)
	// missing distinguishes "no such key" from "no such storage".
	missing(err error) bool
	close() error
}

// Open makes a Bucket for a URL that CheckURL accepts. It uses neither network nor disk, except
// that the AWS SDK reads its configuration.
func Open(ctx context.Context, url string, o Options) (*Bucket, error) {
	at, err := parse(url)
	if err != nil {
		return nil, fmt.Errorf("open storage: %w", err)
	}
	if at.path != "" {
		limited := make(calls, mostCalls)
		disk := &folder{path: at.path, create: o.Claim != nil || o.Owner == nil, calls: limited}
		return &Bucket{storage: disk, marking: marking{options: o}, calls: limited, base: at.base()}, nil
	}
	server, err := newServer(ctx, at, o.Claim != nil)
	if err != nil {
		return nil, fmt.Errorf("open storage: %w", err)
	}
	return &Bucket{storage: server, marking: marking{options: o, trust: serverTrust}, base: at.base()}, nil
}

// Put stores all data of r under the key, replacing an existing file. The file becomes visible only
// when it is complete; if r fails or ctx ends before it has been read it never does. After ErrUnavailable
// the complete file may exist nevertheless: the answer of S3 was lost, or the disk hangs. An error of r is returned unchanged; r
// must not block after ctx has ended.
//
// A Put uses up to 25 MiB of memory for S3 and 1 MiB for a folder, whatever the size. The maximum
// size on S3 is 48 GiB.
func (b *Bucket) Put(ctx context.Context, key string, r io.Reader) error {
	if err := checkKey(key); err != nil {
		return fmt.Errorf("put: %w", err)
	}
	if err := b.verifyInTime(ctx); err != nil {
		return failure(ctx, "put "+key, err)
	}
	from := &source{ctx: ctx, r: r}
	err := b.put(ctx, key, from)
	switch {
	case err == nil:
		return nil
	case from.err != nil:
		return fmt.Errorf("put %s: read the content: %w", key, from.err)
	}
	return failure(ctx, "put "+key, err)
}

// Get opens the file for reading; the caller closes it. Its Read returns ErrUnavailable if the
// storage fails meanwhile. Both return ErrUnavailable when the storage has sent nothing for 8 s.
func (b *Bucket) Get(ctx context.Context, key string) (io.ReadCloser, error) {
	if err := checkKey(key); err != nil {
		return nil, fmt.Errorf("get: %w", err)
	}
	var opened *reader
	err := b.calls.do(ctx, func() (err error) {
		opened, err = b.find(ctx, key)
		return err
	}, func() {
		if opened != nil {
			_ = opened.Close()
		}
	})
	switch {
	case err == nil:
		opened.calls = b.calls
		return opened, nil
	case errors.Is(err, ErrNotFound):
		return nil, err
	}
	return nil, failure(ctx, "get "+key, err)
}

// find opens the file. It reports a file as missing only if the storage is the installation's.
func (b *Bucket) find(ctx context.Context, key string) (*reader, error) {
	r, err := b.get(ctx, key)
	if b.options.Owner == nil || !errors.Is(err, ErrNotFound) {
		return r, err
	}
	if err := b.check(ctx); err != nil {
		return nil, err
	}
	return b.get(ctx, key) // the right disk may have been mounted meanwhile
}

// get returns ErrNotFound or the storage's error.
func (b *Bucket) get(ctx context.Context, key string) (*reader, error) {
	stored, err := b.bucket()
	if err != nil {
		return nil, err
	}
	limit := limitRead(ctx)
	r, err := stored.NewReader(limit.ctx, key, nil)
	err = limit.end(err)
	if err == nil {
		return &reader{ReadCloser: r, ctx: ctx, limit: limit, key: key}, nil
	}
	limit.release()
	if b.missing(err) {
		return nil, fmt.Errorf("get %s: %w", key, ErrNotFound)
	}
	return nil, err
}

// Delete deletes the file. A missing file is not an error.
func (b *Bucket) Delete(ctx context.Context, key string) error {
	if err := checkKey(key); err != nil {
		return fmt.Errorf("delete: %w", err)
	}
	if err := b.verifyInTime(ctx); err != nil {
		return failure(ctx, "delete "+key, err)
	}
	err := b.calls.do(ctx, func() error {
		stored, err := b.bucket()
		if err == nil {
			err = stored.Delete(ctx, key)
		}
		if err == nil || b.missing(err) {
			return nil
		}
		return err
	}, nil)
	return failure(ctx, "delete "+key, err)
}

// List yields the files whose keys begin with the prefix, in the order of the storage. It ends after an error.
// Files created or deleted meanwhile may or may not be included.
func (b *Bucket) List(ctx context.Context, prefix string) iter.Seq2[Object, error] {
	return func(yield func(Object, error) bool) {
		if err := checkPrefix(prefix); err != nil {
			yield(Object{}, fmt.Errorf("list: %w", err))
			return
		}
		if err := b.verifyInTime(ctx); err != nil {
			yield(Object{}, failure(ctx, "list "+prefix, err))
			return
		}
		b.list(ctx, prefix)(yield)
	}
}

func (b *Bucket) list(ctx context.Context, prefix string) iter.Seq2[Object, error] {
	return func(yield func(Object, error) bool) {
		err := b.storage.list(ctx, prefix, func(o Object) bool {
			return o.Key == markerKey || yield(o, nil)
		})
		if err != nil {
			yield(Object{}, failure(ctx, "list "+prefix, err))
		}
	}
}

// DropUnfinished deletes uploads below the prefix that a killed process left incomplete and that
// have not changed since before, and returns their number. On S3 the start of the upload counts.
func (b *Bucket) DropUnfinished(ctx context.Context, prefix string, before time.Time) (int, error) {
	if err := checkPrefix(prefix); err != nil {
		return 0, fmt.Errorf("drop unfinished uploads: %w", err)
	}
	if err := b.verifyInTime(ctx); err != nil {
		return 0, failure(ctx, "drop unfinished uploads", err)
	}
	n, err := b.dropUnfinished(ctx, prefix, before)
	return n, failure(ctx, "drop unfinished uploads", err)
}

// Ping checks that the storage is the installation's, responds and grants access. For a folder, and in the program that
// marks the storage also for an S3 server, it checks that files can be stored. It joins a Ping that is running.
func (b *Bucket) Ping(ctx context.Context) error { return b.join(ctx, "ping", b.ping) }

// PingRead is Ping for a program that only reads.
func (b *Bucket) PingRead(ctx context.Context) error { return b.join(ctx, "pingRead", b.pingRead) }

func (b *Bucket) join(ctx context.Context, kind string, ping func(context.Context) error) error {
	return failure(ctx, "ping", b.checks.do(ctx, kind, func(ctx context.Context) error {
		if err := b.verify(ctx); err != nil {
			return err
		}
		return ping(ctx)
	}))
}

// URL identifies the file for people and other programs, without endpoint and credentials.
func (b *Bucket) URL(key string) string { return b.base + key }

// Close makes further operations fail. Running ones continue.
func (b *Bucket) Close() error {
	return b.calls.do(context.Background(), b.close, nil) // it waits for files being opened
}

// failure wraps an error of the storage with ErrUnavailable; if the caller's ctx has ended it
// returns that error. nil stays nil.
func failure(ctx context.Context, operation string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(ctx.Err(), context.Canceled):
		return fmt.Errorf("%s: %w", operation, context.Cause(ctx))
	}
	return fmt.Errorf("%s: %w: %w", strings.TrimSpace(operation), ErrUnavailable, err)
}
