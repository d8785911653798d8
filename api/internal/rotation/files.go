package rotation

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"email-gateway/api/internal/mailing"
	"email-gateway/shared/blob"
	"email-gateway/shared/keyring"
	"email-gateway/shared/store/file"
)

// deleteTimeout limits how long an interrupted rotation continues to delete a file that it must not keep.
const deleteTimeout = 30 * time.Second

// object is an encrypted object in the storage.
type object struct {
	name    string // in errors
	key     string
	binding []byte
	// kept says whether the object is still to be kept.
	kept func(ctx context.Context) (bool, error)
}

// scanFiles counts the keys of all objects, and re-encrypts those with an old key if change is set.
func (r *Rotation) scanFiles(ctx context.Context, change bool, count func(place, key string), damaged *undecryptable) (changed int, err error) {
	for after := uuid.Nil; ; {
		files, err := r.Store.KeptFiles(ctx, after, filePage)
		if err != nil {
			return changed, err
		}
		for _, f := range files {
			one := object{
				"file of mailing " + f.MailingID.String(), mailing.FileKey(f.CompanyID, f.MailingID), mailing.FileBinding(f.CompanyID, f.MailingID),
				func(ctx context.Context) (bool, error) { return r.Store.FileKept(ctx, f.MailingID) },
			}
			n, err := r.scanFile(ctx, one, change, func(key string) { count(Files, key) }, damaged)
			if changed += n; err != nil {
				return changed, err
			}
		}
		if len(files) < filePage {
			break
		}
		after = files[len(files)-1].MailingID
	}
	stored := file.New(r.Store.DB())
	for after := uuid.Nil; ; {
		files, err := stored.All(ctx, after, filePage)
		if err != nil {
			return changed, err
		}
		for _, f := range files {
			one := object{
				"stored file " + f.ID.String(), f.Key(), file.Binding(f.CompanyID, f.ID),
				func(ctx context.Context) (bool, error) {
					exist, err := stored.Exist(ctx, []uuid.UUID{f.ID})
					return exist[f.ID], err
				},
			}
			n, err := r.scanFile(ctx, one, change, func(key string) { count(Attachments, key) }, damaged)
			if changed += n; err != nil {
				return changed, err
			}
		}
		if len(files) < filePage {
			return changed, nil
		}
		after = files[len(files)-1].ID
	}
}

func (r *Rotation) scanFile(ctx context.Context, o object, change bool, count func(key string), damaged *undecryptable) (changed int, err error) {
	r.report(Files, 0, 0)
	key, err := r.keyOf(ctx, o)
	switch {
	case errors.Is(err, blob.ErrNotFound), damaged.skip(err):
		return 0, nil
	case err != nil:
		return 0, err
	}
	count(key)
	if !change || !r.old(key) {
		return 0, nil
	}
	switch err := r.reencryptFile(ctx, o); {
	case err == nil:
		return 1, nil
	case !damaged.skip(err):
		return 0, err
	}
	return 0, nil
}

func (r *Rotation) keyOf(ctx context.Context, o object) (key string, err error) {
	stored, err := r.Bucket.Get(ctx, o.key)
	if err != nil {
		return "", fmt.Errorf("%s: %w", o.name, err)
	}
	defer func() { err = errors.Join(err, stored.Close()) }()
	if key, err = keyring.KeyOfStream(stored); err != nil {
		return "", fmt.Errorf("%s: %w", o.name, err)
	}
	return key, nil
}

// reencryptFile re-encrypts an object in place. The old one is replaced only when the new one is
// complete; a damaged one is never taken for complete, because its end is authenticated.
func (r *Rotation) reencryptFile(ctx context.Context, o object) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("re-encrypt the %s: %w", o.name, err)
		}
	}()
	stored, err := r.Bucket.Get(ctx, o.key)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stored.Close()) }()
	plain, err := r.Ring.DecryptReader(stored, o.binding)
	if err != nil {
		return err
	}
	reencrypted, err := r.Ring.EncryptReader(plain, o.binding)
	if err != nil {
		return err
	}
	if err := r.Bucket.Put(ctx, o.key, reencrypted); err != nil {
		return err
	}
	// If it was deleted meanwhile, it must not reappear, also if the command is interrupted after Put.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), deleteTimeout)
	defer cancel()
	kept, err := o.kept(ctx)
	if err == nil && !kept {
		err = r.Bucket.Delete(ctx, o.key)
	}
	return err
}
