package attachment

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/google/uuid"

	"email-gateway/shared/blob"
	"email-gateway/shared/keyring"
	"email-gateway/shared/store"
	"email-gateway/shared/store/file"
	"email-gateway/shared/uuidv7"
)

// Bucket stores objects; see *blob.Bucket.
type Bucket interface {
	Put(ctx context.Context, key string, r io.Reader) error
	Delete(ctx context.Context, key string) error
}

// Files are the rows about stored files.
type Files interface {
	UseFile(ctx context.Context, company uuid.UUID, sha256 []byte) (file.File, error)
	AddFile(ctx context.Context, f file.File) (file.File, error)
	ClearMissing(ctx context.Context, company, id uuid.UUID) error
}

// Slots limits how many contents are being written to the storage concurrently, in total and per company.
type Slots func(ctx context.Context, company uuid.UUID) (release func(), err error)

const (
	// putTime limits storing a content; a storage that takes longer counts as unavailable.
	putTime = time.Minute
	// dropTime limits deleting an object, for which the request's context may have ended.
	dropTime = 10 * time.Second
)

// Library stores contents. It is safe for concurrent use.
type Library struct {
	Log    *slog.Logger
	Bucket Bucket
	Files  Files
	Ring   keyring.Ring
	Slots  Slots
}

// Store stores a content of a company, or finds it if the company has stored it before: then the storage is not used,
// unless a worker has found that the object is missing. The object is complete before its row exists. An object without
// a row, after a crash, is deleted by the dispatcher. The error is that of the storage (blob.ErrUnavailable), of the
// database, or a *quota.Error.
func (l *Library) Store(ctx context.Context, company uuid.UUID, c *Content) (stored file.File, found bool, err error) {
	stored, err = l.Files.UseFile(ctx, company, c.SHA256())
	if err == nil && !stored.Missing || err != nil && !errors.Is(err, store.ErrNotFound) {
		return stored, err == nil, err
	}
	known := err == nil
	release, err := l.Slots(ctx, company)
	if err != nil {
		return file.File{}, false, err
	}
	defer release()
	if known {
		if err = l.storeAgain(ctx, stored, c); !errors.Is(err, store.ErrNotFound) {
			return stored, err == nil, err
		}
	}
	return l.add(ctx, company, c)
}

// storeAgain stores the object of a row that lacks it. The error is store.ErrNotFound if the row was deleted meanwhile.
func (l *Library) storeAgain(ctx context.Context, f file.File, c *Content) error {
	if _, err := l.put(ctx, f, c); err != nil {
		return err
	}
	err := l.Files.ClearMissing(ctx, f.CompanyID, f.ID)
	if errors.Is(err, store.ErrNotFound) {
		l.drop(ctx, f)
	}
	return err
}

// add stores a content under a new id.
func (l *Library) add(ctx context.Context, company uuid.UUID, c *Content) (stored file.File, found bool, err error) {
	id := uuidv7.New()
	f := file.File{ID: id, CompanyID: company, SHA256: c.SHA256(), Size: c.Size(), MediaType: c.MediaType()}
	if f.Bytes, err = l.put(ctx, f, c); err != nil {
		return file.File{}, false, err
	}
	stored, err = l.Files.AddFile(ctx, f)
	if (err != nil && !errors.Is(err, store.ErrUnknownOutcome)) || (err == nil && stored.ID != f.ID) {
		l.drop(ctx, f)
	}
	return stored, err == nil && stored.ID != f.ID, err
}

// put encrypts and stores the content, and returns the size of the object.
func (l *Library) put(ctx context.Context, f file.File, c *Content) (int64, error) {
	encrypted, err := l.Ring.EncryptReader(c.file.Reader(), file.Binding(f.CompanyID, f.ID))
	if err != nil {
		return 0, fmt.Errorf("encrypt file: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, putTime)
	defer cancel()
	counted := &counter{r: encrypted}
	err = l.Bucket.Put(ctx, file.Key(f.CompanyID, f.ID), counted)
	if err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		err = fmt.Errorf("%w: %w", blob.ErrUnavailable, err)
	}
	if err != nil {
		return 0, fmt.Errorf("store file: %w", err)
	}
	return counted.bytes, nil
}

// drop deletes an object that no row names. If it fails, the dispatcher deletes it later.
func (l *Library) drop(ctx context.Context, f file.File) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), dropTime)
	defer cancel()
	if err := l.Bucket.Delete(ctx, file.Key(f.CompanyID, f.ID)); err != nil {
		l.Log.Warn("cannot delete an unused file: the dispatcher deletes it later", "error", err)
	}
}

// counter counts the bytes read.
type counter struct {
	r     io.Reader
	bytes int64
}

func (c *counter) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.bytes += int64(n)
	return n, err
}
