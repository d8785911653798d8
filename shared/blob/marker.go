package blob

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
)

// markerKey is the key of the marker, whose content is the id of an installation. Get, Put and Delete refuse this key, and
// List leaves it out.
const markerKey = "installation"

const (
	// markerBytes limits what is read of a marker. An id has 36.
	markerBytes = 200
	// claimKeys is how many keys below each of filePrefixes a Claimer compares with the rows of the database.
	claimKeys = 1000
)

// filePrefixes are the prefixes of the keys of an installation's files. Other objects in the bucket do not matter.
var filePrefixes = []string{"files/", "mailings/"}

// Options configure a Bucket. With none it uses any storage, and creates a missing folder.
type Options struct {
	// Owner is the installation that the storage must belong to. nil = it is not checked.
	Owner Owner
	// Claim is set in the program that marks the storage: the api, which writes files. The Bucket then creates a missing
	// folder, and marks a storage without a marker that the Claimer accepts.
	Claim Claimer
	// Log gets a line when the storage is found to be another one, and when it is the right one again. nil = no log.
	Log *slog.Logger
}

// Owner knows the installation that the program belongs to.
type Owner interface {
	// Installation returns the id of the installation, and whether a storage has been marked with it. Until then a
	// program that does not mark storages uses its storage as it is, unless it has the marker of another installation: the
	// api may not have been updated yet.
	Installation(ctx context.Context) (id uuid.UUID, marked bool, err error)
}

// Claimer decides whether a storage without a marker may be marked as the installation's.
type Claimer interface {
	// MayClaim returns why the storage looks like another one, or "". keys are those of some of its files.
	MayClaim(ctx context.Context, keys []string) (refusal string, err error)
	// RecordMarked records that the storage is marked: see Owner.
	RecordMarked(ctx context.Context) error
}

// errForeign: the storage is not the installation's. errOther: its marker is that of another one.
var (
	errForeign = errors.New("STORAGE_URL does not name the storage of this installation")
	errOther   = fmt.Errorf("%w", errForeign)
)

// marking checks the marker of a Bucket.
type marking struct {
	options Options
	trust   time.Duration // how long a positive result counts

	mu       sync.Mutex
	id       uuid.UUID // of the installation whose storage is marked; zero = not known yet
	verified time.Time // the last positive result
	foreign  bool      // the last result
	warned   bool      // that the storage cannot be marked
}

// Verify returns ErrUnavailable if the storage is not the installation's now. A caller that finds other content than it
// stored asks this: a proxy may answer every request with a page of its own.
func (b *Bucket) Verify(ctx context.Context) error {
	if b.options.Owner == nil {
		return nil
	}
	return failure(ctx, "verify", b.calls.do(ctx, func() error { return b.check(ctx) }, nil))
}

// verifyInTime is verify for the operations on files.
func (b *Bucket) verifyInTime(ctx context.Context) error {
	return b.calls.do(ctx, func() error { return b.verify(ctx) }, nil)
}

// verify returns an error if the storage is not the installation's. It relies on a check that is younger than trust.
func (b *Bucket) verify(ctx context.Context) error {
	if b.options.Owner == nil {
		return nil
	}
	b.mu.Lock()
	trusted := time.Since(b.verified) < b.trust
	b.mu.Unlock()
	if trusted {
		return nil
	}
	return b.check(ctx)
}

// check reads the marker, or writes it where there is none and the program marks storages. It logs when the result changes.
func (b *Bucket) check(ctx context.Context) error {
	err := b.checkMarker(ctx)
	b.mu.Lock()
	before := b.foreign
	switch {
	case err == nil:
		b.foreign, b.verified = false, time.Now()
	case errors.Is(err, errForeign):
		b.foreign, b.verified = true, time.Time{}
	}
	now := b.foreign
	b.mu.Unlock()
	switch log := b.options.Log; {
	case log == nil || now == before:
	case now:
		log.Error("wrong storage", "error", err)
	default:
		log.Info("the storage is this installation's again")
	}
	return err
}

func (b *Bucket) checkMarker(ctx context.Context) error {
	id, marked, err := b.installation(ctx)
	if err != nil {
		return fmt.Errorf("read the id of the installation: %w", err)
	}
	err = b.compare(ctx, id)
	switch {
	case marked:
		return err
	case b.options.Claim == nil && !errors.Is(err, errOther):
		return nil // no program has marked the storage yet
	case denied(err):
		b.warn(err)
		return nil // a storage that no program has marked is used as it is
	case err != nil:
		return err
	}
	if err := b.options.Claim.RecordMarked(ctx); err != nil {
		return fmt.Errorf("record that the storage is marked: %w", err)
	}
	return nil
}

// compare compares the marker with the id, or marks a storage that has none.
func (b *Bucket) compare(ctx context.Context, id uuid.UUID) error {
	found, err := b.marker(ctx)
	switch {
	case errors.Is(err, ErrNotFound) && b.options.Claim != nil:
		return b.claim(ctx, id)
	case errors.Is(err, ErrNotFound):
		return b.noMarker(id, "the disk may not be mounted")
	case err != nil:
		return fmt.Errorf("read the marker: %w", err)
	case found != id.String():
		return fmt.Errorf("%w: the object %s contains %q, which is not the id of this one, %s", errOther, b.URL(markerKey), found, id)
	}
	return nil
}

// warn logs once that the storage cannot be marked.
func (b *Bucket) warn(err error) {
	b.mu.Lock()
	first := !b.warned
	b.warned = true
	b.mu.Unlock()
	if first && b.options.Log != nil {
		b.options.Log.Warn("the storage cannot be marked: the api needs s3:ListBucket, and s3:GetObject and s3:PutObject for the object "+markerKey, "error", err)
	}
}

// installation returns what the Owner knows. An id whose storage is marked does not change.
func (b *Bucket) installation(ctx context.Context) (id uuid.UUID, marked bool, err error) {
	b.mu.Lock()
	id = b.id
	b.mu.Unlock()
	if id != uuid.Nil {
		return id, true, nil
	}
	id, marked, err = b.options.Owner.Installation(ctx)
	if err == nil && marked {
		b.mu.Lock()
		b.id = id
		b.mu.Unlock()
	}
	return id, marked, err
}

// claim marks a storage that has no marker.
func (b *Bucket) claim(ctx context.Context, id uuid.UUID) error {
	var keys []string
	for _, prefix := range filePrefixes {
		n := 0
		for object, err := range b.list(ctx, prefix) {
			if err != nil {
				return fmt.Errorf("list files: %w", err)
			}
			keys = append(keys, object.Key)
			if n++; n == claimKeys {
				break
			}
		}
	}
	refusal, err := b.options.Claim.MayClaim(ctx, keys)
	if err != nil {
		return fmt.Errorf("compare the storage with the database: %w", err)
	}
	if refusal != "" {
		// Another check, or another api, may have marked the storage since the marker was read: it writes the marker,
		// then records that.
		if found, err := b.marker(ctx); err == nil && found == id.String() {
			return nil
		}
		return b.noMarker(id, refusal)
	}
	if err := b.put(ctx, markerKey, strings.NewReader(id.String()+"\n")); err != nil {
		return fmt.Errorf("write the marker: %w", err)
	}
	return nil
}

// noMarker is the error of a storage without a marker.
func (b *Bucket) noMarker(id uuid.UUID, why string) error {
	return fmt.Errorf("%w: the object %s does not exist: %s. If the storage is the right one, store the text %s in this object", errForeign, b.URL(markerKey), why, id)
}

// marker returns the content of the marker.
func (b *Bucket) marker(ctx context.Context) (string, error) {
	r, err := b.get(ctx, markerKey)
	if err != nil {
		return "", err
	}
	defer func() { _ = r.Close() }()
	content, err := io.ReadAll(io.LimitReader(r, markerBytes))
	return strings.TrimSpace(string(content)), err
}
