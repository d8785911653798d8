// Package attachment reads the attachments of emails from the file storage, decrypts them, and bounds the memory that the
// attachments and large bodies of all emails in flight have.
package attachment

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/google/uuid"

	"email-gateway/shared/blob"
	"email-gateway/shared/keyring"
	"email-gateway/shared/store/file"
	"email-gateway/worker/internal/provider"
)

// Bucket reads objects; see *blob.Bucket.
type Bucket interface {
	Get(ctx context.Context, key string) (io.ReadCloser, error)
	Verify(ctx context.Context) error
}

// Store lists attachments, and records which of their objects are missing; see *file.Store.
type Store interface {
	Attachments(ctx context.Context, company, owner uuid.UUID) ([]file.Attachment, error)
	MarkMissing(ctx context.Context, company, id uuid.UUID) error
	ClearMissing(ctx context.Context, company, id uuid.UUID) error
}

// ErrUnavailable: the storage cannot be reached, or the key that the files are encrypted with is missing.
var ErrUnavailable = errors.New("attachments cannot be read now")

// errSlow is the ErrUnavailable of files that were being read when readTime was over. The storage works: it has sent
// data until then.
var errSlow = fmt.Errorf("%w: reading takes too long", ErrUnavailable)

// NotTriedError is the ErrUnavailable of an email for which the storage was not used, because reads for others had failed.
type NotTriedError struct {
	// Delay is when the email should be tried again.
	Delay time.Duration
}

func (e *NotTriedError) Error() string {
	return ErrUnavailable.Error() + ": the storage is unavailable"
}

func (e *NotTriedError) Unwrap() error { return ErrUnavailable }

// BusyError says that other attachments and bodies use all the memory, or other attachments all the places.
type BusyError struct {
	// Delay is when the email should be tried again.
	Delay time.Duration
}

func (e *BusyError) Error() string {
	return "no memory or slot is free: other attachments and large bodies are being sent"
}

// readTime limits reading the attachments of one email: see reservedWait. A storage that sends nothing is noticed earlier, by
// *blob.Bucket.
const readTime = 30 * time.Second

// Loader reads attachments. It is safe for concurrent use.
type Loader struct {
	store  Store
	bucket Bucket
	ring   keyring.Ring
	budget *budget
	pacing *pacing
	outage outage

	readTime time.Duration
}

// Params configure a Loader.
type Params struct {
	Store  Store
	Bucket Bucket
	Ring   keyring.Ring
	// Concurrency is how many emails the worker has in flight; half of them may have attachments.
	Concurrency func() int
}

// New makes a Loader.
func New(p Params) *Loader {
	return &Loader{
		store: p.Store, bucket: p.Bucket, ring: p.Ring, budget: newBudget(func() int { return p.Concurrency() / 2 }), pacing: newPacing(),
		readTime: readTime,
	}
}

// Need is what an email needs memory for.
type Need struct {
	Company uuid.UUID
	Lane    string    // of the company: the emails of a lane that wait for memory are due one after another
	Owner   uuid.UUID // of the attachments: the email, or its mailing
	Count   int       // how many attachments there must be
	Body    int64     // bytes of html and text; 0 = they need no room
}

// Room is the memory of one email.
type Room struct {
	// Read reads the attachments. The error is ErrUnavailable, a *MissingError, or that of the context.
	Read func(ctx context.Context) ([]provider.Attachment, error)
	// Release returns the memory: when the provider has answered, or when nothing is sent. It may be called more than once.
	Release func()
}

// Reserve waits for memory. The error is a *BusyError, a *MissingError, or that of the database.
func (l *Loader) Reserve(ctx context.Context, n Need) (*Room, error) {
	var listed []file.Attachment
	if n.Count > 0 {
		var err error
		if listed, err = l.store.Attachments(ctx, n.Company, n.Owner); err != nil {
			return nil, err
		}
		if len(listed) != n.Count {
			return nil, &MissingError{reason: fmt.Sprintf("the email has %d attachments, %d are stored", n.Count, len(listed))}
		}
	}
	of := lane{n.Company, n.Lane}
	free, err := l.budget.acquire(ctx, n.Company, n.Owner, need{weight(sizeOf(listed), n.Body), min(n.Count, 1)})
	switch {
	case errors.Is(err, errReserved):
		return nil, &BusyError{minDelay} // the room is kept free for it
	case err != nil:
		return nil, &BusyError{l.pacing.delay(of, time.Now())}
	}
	gone := l.pacing.start(of, time.Now())
	return &Room{
		Read: func(ctx context.Context) ([]provider.Attachment, error) { return l.readListed(ctx, n.Company, listed) },
		Release: sync.OnceFunc(func() {
			free()
			gone(time.Now())
		}),
	}, nil
}

func (l *Loader) readListed(ctx context.Context, company uuid.UUID, listed []file.Attachment) ([]provider.Attachment, error) {
	if len(listed) == 0 {
		return nil, nil
	}
	end, delay := l.outage.begin()
	if end == nil {
		return nil, &NotTriedError{delay}
	}
	all, unread, err := l.readAll(ctx, company, listed)
	end(ctx, unread, err)
	return all, err
}

// readAll reads all files, or returns the first one that cannot be read.
func (l *Loader) readAll(
	ctx context.Context, company uuid.UUID, listed []file.Attachment,
) (all []provider.Attachment, unread uuid.UUID, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, l.readTime, errSlow)
	defer cancel()
	all = make([]provider.Attachment, len(listed))
	for i, a := range listed {
		content, err := l.read(ctx, company, a)
		if err == nil {
			err = l.found(ctx, company, a)
		}
		if err != nil {
			return nil, a.FileID, err
		}
		all[i] = provider.Attachment{
			Filename: a.Filename, ContentType: a.ContentType, ContentID: a.ContentID, Inline: a.Disposition == file.Inline, Content: content,
		}
	}
	return all, uuid.Nil, nil
}

func sizeOf(listed []file.Attachment) (size int64) {
	for _, a := range listed {
		size += a.Size
	}
	return size
}

// read reads one file and compares it with its row.
func (l *Loader) read(ctx context.Context, company uuid.UUID, a file.Attachment) (content []byte, err error) {
	stored, err := l.bucket.Get(ctx, file.Key(company, a.FileID))
	switch {
	case errors.Is(err, blob.ErrNotFound):
		return nil, l.missing(ctx, company, a, "is not in the storage")
	case err != nil:
		return nil, unavailable(ctx, err)
	}
	defer func() { err = errors.Join(err, stored.Close()) }()
	plain, err := l.ring.DecryptReader(stored, file.Binding(company, a.FileID))
	if err == nil {
		content = make([]byte, a.Size)
		if _, err = io.ReadFull(plain, content); err == nil {
			_, err = io.ReadFull(plain, make([]byte, 1)) // the content is complete only at its end
		}
	}
	sum := sha256.Sum256(content)
	switch {
	case errors.Is(err, io.EOF) && bytes.Equal(sum[:], a.SHA256):
		return content, nil
	case errors.Is(err, blob.ErrUnavailable): // first: the error of a cut connection is also an io.ErrUnexpectedEOF
	case errors.Is(err, keyring.ErrUndecryptable), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), err == nil:
		if err := l.bucket.Verify(ctx); err != nil {
			return nil, unavailable(ctx, err)
		}
		return nil, l.missing(ctx, company, a, "is damaged")
	}
	return nil, unavailable(ctx, err) // the storage, or a key that is not in the ring
}

// unavailable wraps an error of the storage.
func unavailable(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); errors.Is(cause, errSlow) {
		return cause
	}
	return fmt.Errorf("%w: %w", ErrUnavailable, err)
}
