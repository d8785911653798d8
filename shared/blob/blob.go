// Package blob stores whole files under keys: the uploaded CSV files of mailings, in
// a folder or on any S3 server. Which one is decided by a URL (see CheckURL). What is
// kept should be encrypted already: this package stores the bytes as they come.
//
// A Bucket opens no connection before it is used, so a storage that is down fails
// what needs it and nothing else.
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
	// ErrUnavailable: the storage cannot be reached, refuses us, or is full. Trying
	// again later may help.
	ErrUnavailable = errors.New("storage unavailable")
)

// contentType of everything: what is stored is not for browsers.
const contentType = "application/octet-stream"

// Bucket is a storage. Any number of goroutines may use it.
type Bucket struct {
	storage
	base string // URL of the key ""
	page int    // objects that a listing asks for at a time
}

// Object is one stored file.
type Object struct {
	Key     string
	Size    int64     // bytes
	ModTime time.Time // by the clock of the storage; on S3 when the upload began
}

// storage is what a folder and an S3 server do in different ways.
type storage interface {
	bucket() (*blob.Bucket, error)
	put(ctx context.Context, key string, r io.Reader) error
	ping(ctx context.Context) error
	dropUnfinished(ctx context.Context, prefix string, before time.Time) (int, error)
	// missing tells "nothing under this key" from "no storage here".
	missing(err error) bool
	close() error
}

// Open makes a Bucket of a URL that CheckURL accepts. It touches neither network nor
// disk, except that the AWS SDK reads its own configuration.
func Open(ctx context.Context, url string) (*Bucket, error) {
	at, err := parse(url)
	if err != nil {
		return nil, fmt.Errorf("open storage: %w", err)
	}
	if at.path != "" {
		return &Bucket{storage: &folder{path: at.path}, base: at.base(), page: folderPage}, nil
	}
	server, err := newServer(ctx, at)
	if err != nil {
		return nil, fmt.Errorf("open storage: %w", err)
	}
	return &Bucket{storage: server, base: at.base(), page: serverPage}, nil
}

// Put stores all that r yields under the key, in the place of what was there. Until
// it is whole it cannot be seen, and when r fails or ctx ends it never will be. After
// ErrUnavailable from S3 the whole file may stand there all the same: the answer was
// lost. An error of r is returned as it is; r must not outlast ctx.
//
// A Put holds up to 25 MiB of memory for S3 and 1 MiB for a folder, whatever the size.
// The largest file on S3 has 48 GiB.
func (b *Bucket) Put(ctx context.Context, key string, r io.Reader) error {
	if err := checkKey(key); err != nil {
		return fmt.Errorf("put: %w", err)
	}
	from := &source{ctx: ctx, r: r}
	err := b.put(ctx, key, from)
	switch {
	case err == nil:
		return nil
	case from.err != nil:
		return fmt.Errorf("put %s: read what is to be stored: %w", key, from.err)
	}
	return failure(ctx, "put "+key, err)
}

// Get opens the file for reading; the caller closes it. Its Read returns
// ErrUnavailable when the storage fails in the middle.
func (b *Bucket) Get(ctx context.Context, key string) (io.ReadCloser, error) {
	if err := checkKey(key); err != nil {
		return nil, fmt.Errorf("get: %w", err)
	}
	stored, err := b.bucket()
	if err != nil {
		return nil, failure(ctx, "get "+key, err)
	}
	r, err := stored.NewReader(ctx, key, nil)
	switch {
	case err == nil:
		return &reader{ReadCloser: r, ctx: ctx, key: key}, nil
	case b.missing(err):
		return nil, fmt.Errorf("get %s: %w", key, ErrNotFound)
	}
	return nil, failure(ctx, "get "+key, err)
}

// Delete takes the file away. It is no error when there is none.
func (b *Bucket) Delete(ctx context.Context, key string) error {
	if err := checkKey(key); err != nil {
		return fmt.Errorf("delete: %w", err)
	}
	stored, err := b.bucket()
	if err == nil {
		err = stored.Delete(ctx, key)
	}
	if err == nil || b.missing(err) {
		return nil
	}
	return failure(ctx, "delete "+key, err)
}

// List yields the files whose keys begin with the prefix, in the order of their keys.
// After an error it ends. Files that come or go meanwhile may be missed or seen.
func (b *Bucket) List(ctx context.Context, prefix string) iter.Seq2[Object, error] {
	return func(yield func(Object, error) bool) {
		if err := checkPrefix(prefix); err != nil {
			yield(Object{}, fmt.Errorf("list: %w", err))
			return
		}
		stored, err := b.bucket()
		for page := blob.FirstPageToken; err == nil && len(page) > 0; {
			var objects []*blob.ListObject
			objects, page, err = stored.ListPage(ctx, page, b.page, &blob.ListOptions{Prefix: prefix})
			for _, o := range objects {
				if isUnfinished(o.Key) {
					continue
				}
				if !yield(Object{Key: o.Key, Size: o.Size, ModTime: o.ModTime}, nil) {
					return
				}
			}
		}
		if err != nil {
			yield(Object{}, failure(ctx, "list "+prefix, err))
		}
	}
}

// DropUnfinished frees the space of uploads below the prefix that a killed process
// left in the middle and that nobody went on with since before, and says how many.
// S3 counts from the beginning of the upload.
func (b *Bucket) DropUnfinished(ctx context.Context, prefix string, before time.Time) (int, error) {
	if err := checkPrefix(prefix); err != nil {
		return 0, fmt.Errorf("drop unfinished uploads: %w", err)
	}
	n, err := b.dropUnfinished(ctx, prefix, before)
	return n, failure(ctx, "drop unfinished uploads", err)
}

// Ping asks whether the storage answers and lets us in; of a folder also whether it
// can be written to.
func (b *Bucket) Ping(ctx context.Context) error {
	return failure(ctx, "ping", b.ping(ctx))
}

// URL names the file for people and other programs. It says nothing of how to reach
// the storage: no endpoint, no credentials.
func (b *Bucket) URL(key string) string { return b.base + key }

// Close makes further use fail. What is under way goes on.
func (b *Bucket) Close() error { return b.close() }

// failure says of an error of the storage that it is one; a caller who gave up gets
// his own error back. nil stays nil.
func failure(ctx context.Context, operation string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(ctx.Err(), context.Canceled):
		return fmt.Errorf("%s: %w", operation, context.Cause(ctx))
	}
	return fmt.Errorf("%s: %w: %w", strings.TrimSpace(operation), ErrUnavailable, err)
}
