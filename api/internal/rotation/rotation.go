// Package rotation seals anew, with the newest key, what older ones have sealed: CPFs and
// CNPJs in the tables, and uploaded files. gatewayctl uses it. It works in small batches
// and remembers nothing: what the newest key has sealed is passed by, so a run that was
// broken off is repeated, and does what is left.
package rotation

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/google/uuid"

	"email-gateway/api/internal/keyring"
	"email-gateway/api/internal/mailing"
	"email-gateway/shared/blob"
	"email-gateway/shared/store"
)

// Bucket is where uploaded files are. *blob.Bucket is one.
type Bucket interface {
	Get(ctx context.Context, key string) (io.ReadCloser, error)
	Put(ctx context.Context, key string, r io.Reader) error
	Delete(ctx context.Context, key string) error
}

// Rotation is everything that holds sealed values.
type Rotation struct {
	Store  *store.Store
	Bucket Bucket
	Ring   keyring.Ring
	// Progress is told what is being looked at, how many values were found and how many of
	// them were sealed anew so far.
	Progress func(what string, found, resealed int)
}

// Files stands beside the tables' names in a Census.
const Files = "files"

// Census says how many values each key has sealed: by place, and then by the key's id.
type Census map[string]map[string]int

// Of is how many values a key has sealed, in all places.
func (c Census) Of(key string) (n int) {
	for _, keys := range c {
		n += keys[key]
	}
	return n
}

// Keys are the ids of all keys that have sealed something.
func (c Census) Keys() []string {
	var all []string
	for _, keys := range c {
		for key := range keys {
			all = append(all, key)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

const (
	// batch numbers go in one commit: some 10 ms.
	batch = 500
	// filePage is how many mailings one look lists.
	filePage = 500
)

// Count counts what each key has sealed. It changes nothing.
func (r *Rotation) Count(ctx context.Context) (Census, error) {
	census, _, err := r.walk(ctx, false)
	return census, err
}

// Run seals anew what keys of the ring other than the newest have sealed, and says how many
// values that were. What a key has sealed that the ring does not hold stays as it is. So does
// what is damaged, or was sealed with another key of the same id: the rest is done, and the
// error, keyring.ErrSealed, names some of it.
func (r *Rotation) Run(ctx context.Context) (resealed int, err error) {
	if r.Ring.Newest() == "" {
		return 0, keyring.ErrNoKey
	}
	_, resealed, err = r.walk(ctx, true)
	return resealed, err
}

// walk goes through everything, once.
func (r *Rotation) walk(ctx context.Context, change bool) (Census, int, error) {
	census := Census{}
	var damaged damage
	found, resealed := 0, 0
	count := func(place, key string) {
		if census[place] == nil {
			census[place] = map[string]int{}
		}
		census[place][key]++
		found++
	}
	for _, table := range store.SealedTables() {
		for after := uuid.Nil; ; {
			r.tell(string(table), found, resealed)
			page, err := r.Store.SealedValues(ctx, table, after)
			if err != nil {
				return nil, resealed, err
			}
			var old []store.SealedValue
			for _, v := range page.Values {
				key, err := keyring.KeyOf(v.Sealed)
				if err != nil {
					damaged.passes(wrapped(table, v, err))
					continue
				}
				count(string(table), key)
				if change && r.old(key) {
					old = append(old, v)
				}
			}
			n, err := r.reseal(ctx, table, old, &damaged)
			if resealed += n; err != nil {
				return nil, resealed, err
			}
			if !page.More {
				break
			}
			after = page.Last
		}
	}
	for after := uuid.Nil; ; {
		files, err := r.Store.KeptFiles(ctx, after, filePage)
		if err != nil {
			return nil, resealed, err
		}
		for _, f := range files {
			r.tell(Files, found, resealed)
			key, err := r.keyOf(ctx, f)
			switch {
			case errors.Is(err, blob.ErrNotFound), damaged.passes(err):
				continue
			case err != nil:
				return nil, resealed, err
			}
			count(Files, key)
			if change && r.old(key) {
				switch err := r.resealFile(ctx, f); {
				case err == nil:
					resealed++
				case !damaged.passes(err):
					return nil, resealed, err
				}
			}
		}
		if len(files) < filePage {
			return census, resealed, damaged.err()
		}
		after = files[len(files)-1].MailingID
	}
}

// old says whether the key is one of the ring that is not the newest.
func (r *Rotation) old(key string) bool {
	return key != r.Ring.Newest() && slices.Contains(r.Ring.IDs(), key)
}

func (r *Rotation) reseal(ctx context.Context, table store.SealedTable, values []store.SealedValue, damaged *damage) (resealed int, err error) {
	for some := range slices.Chunk(values, batch) {
		var was []store.SealedValue
		var now [][]byte
		for _, v := range some {
			anew, err := r.anew(v)
			if err != nil {
				if err = wrapped(table, v, err); damaged.passes(err) {
					continue
				}
				return resealed, err
			}
			was, now = append(was, v), append(now, anew)
		}
		n, err := r.Store.Reseal(ctx, table, was, now)
		if resealed += n; err != nil {
			return resealed, err
		}
	}
	return resealed, nil
}

func (r *Rotation) anew(v store.SealedValue) ([]byte, error) {
	bare, err := r.Ring.Open(v.CompanyID, v.Sealed)
	if err != nil {
		return nil, err
	}
	return r.Ring.Seal(v.CompanyID, bare)
}

func wrapped(table store.SealedTable, v store.SealedValue, err error) error {
	return fmt.Errorf("%s %s: %w", table, v.ID, err)
}

func (r *Rotation) keyOf(ctx context.Context, f store.MailingFile) (key string, err error) {
	stored, err := r.Bucket.Get(ctx, mailing.FileKey(f.CompanyID, f.MailingID))
	if err != nil {
		return "", fmt.Errorf("file of mailing %s: %w", f.MailingID, err)
	}
	defer func() { err = errors.Join(err, stored.Close()) }()
	if key, err = keyring.KeyOfStream(stored); err != nil {
		return "", fmt.Errorf("file of mailing %s: %w", f.MailingID, err)
	}
	return key, nil
}

// resealFile writes a file anew in its own place. Until the new one is whole the old one
// stands there, and one that is damaged is never taken for whole: its end is authenticated.
func (r *Rotation) resealFile(ctx context.Context, f store.MailingFile) (err error) {
	key, binding := mailing.FileKey(f.CompanyID, f.MailingID), mailing.FileBinding(f.CompanyID, f.MailingID)
	defer func() {
		if err != nil {
			err = fmt.Errorf("reseal the file of mailing %s: %w", f.MailingID, err)
		}
	}()
	stored, err := r.Bucket.Get(ctx, key)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stored.Close()) }()
	plain, err := r.Ring.DecryptReader(stored, binding)
	if err != nil {
		return err
	}
	anew, err := r.Ring.EncryptReader(plain, binding)
	if err != nil {
		return err
	}
	if err := r.Bucket.Put(ctx, key, anew); err != nil {
		return err
	}
	// Its time may have come meanwhile: then it must not stand there again.
	kept, err := r.Store.FileKept(ctx, f.MailingID)
	if err == nil && !kept {
		err = r.Bucket.Delete(ctx, key)
	}
	return err
}

func (r *Rotation) tell(what string, found, resealed int) {
	if r.Progress != nil {
		r.Progress(what, found, resealed)
	}
}
