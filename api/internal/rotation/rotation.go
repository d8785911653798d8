// Package rotation re-encrypts values of older keys with the newest key: CPFs and CNPJs in the
// tables, and uploaded files. gatewayctl uses it. It works in small batches and keeps no state:
// values of the newest key are skipped, so an interrupted run can be repeated and continues.
package rotation

import (
	"context"
	"fmt"
	"io"
	"slices"

	"github.com/google/uuid"

	"email-gateway/shared/keyring"
	"email-gateway/shared/store"
	"email-gateway/shared/store/encryption"
	"email-gateway/shared/store/webhook"
)

// Bucket stores uploaded files; see *blob.Bucket.
type Bucket interface {
	Get(ctx context.Context, key string) (io.ReadCloser, error)
	Put(ctx context.Context, key string, r io.Reader) error
	Delete(ctx context.Context, key string) error
}

// Rotation holds the dependencies of a rotation.
type Rotation struct {
	Store  *store.Store
	Bucket Bucket
	Ring   keyring.Ring
	// Webhooks holds the secrets of webhook endpoints.
	Webhooks WebhookSecrets
	// Progress is called with what is being scanned, how many values were found and how many were
	// re-encrypted so far.
	Progress func(what string, found, changed int)
}

// WebhookSecrets stores the secrets of webhook endpoints; see *webhook.Store.
type WebhookSecrets interface {
	Secrets(ctx context.Context, after uuid.UUID, limit int) ([]webhook.Secrets, error)
	Reencrypt(ctx context.Context, was, now webhook.Secrets) error
}

// Files is the name of uploaded files in a KeyUsage, next to the table names.
const Files = "files"

// Attachments is the name of stored files for attachments in a KeyUsage.
const Attachments = "attachments"

// KeyUsage counts encrypted values by place and key id.
type KeyUsage map[string]map[string]int

// Of returns how many values a key has encrypted in all places.
func (c KeyUsage) Of(key string) (n int) {
	for _, keys := range c {
		n += keys[key]
	}
	return n
}

// Keys returns the ids of all keys that have encrypted values.
func (c KeyUsage) Keys() []string {
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
	// batch is the number of values per transaction: about 10 ms.
	batch = 500
	// filePage is the number of mailings per query.
	filePage = 500
)

// Count counts the values of each key. It changes nothing. Values that are damaged are not counted: the error,
// keyring.ErrUndecryptable, lists some of them, and the usage of the others is valid.
func (r *Rotation) Count(ctx context.Context) (KeyUsage, error) {
	usage, _, err := r.scan(ctx, false)
	return usage, err
}

// Run re-encrypts the values of older keys of the ring and returns their number. Values whose key is
// not in the ring are kept. Values that are damaged, or encrypted with another key of the same id,
// are kept too; the error, keyring.ErrUndecryptable, then lists some of them.
func (r *Rotation) Run(ctx context.Context) (changed int, err error) {
	if r.Ring.Newest() == "" {
		return 0, keyring.ErrNoKey
	}
	_, changed, err = r.scan(ctx, true)
	return changed, err
}

// scan scans all tables and files once.
func (r *Rotation) scan(ctx context.Context, change bool) (KeyUsage, int, error) {
	usage := KeyUsage{}
	var damaged undecryptable
	found, changed := 0, 0
	count := func(place, key string) {
		if usage[place] == nil {
			usage[place] = map[string]int{}
		}
		usage[place][key]++
		found++
	}
	for _, table := range encryption.EncryptedTables() {
		for after := uuid.Nil; ; {
			r.report(string(table), found, changed)
			page, err := r.Store.EncryptedValues(ctx, table, after)
			if err != nil {
				return nil, changed, err
			}
			var old []encryption.EncryptedValue
			for _, v := range page.Values {
				key, err := keyring.KeyOf(v.Encrypted)
				if err != nil {
					damaged.skip(wrapped(table, v, err))
					continue
				}
				count(string(table), key)
				if change && r.old(key) {
					old = append(old, v)
				}
			}
			n, err := r.reencryptRows(ctx, table, old, &damaged)
			if changed += n; err != nil {
				return nil, changed, err
			}
			if !page.More {
				break
			}
			after = page.Last
		}
	}
	n, err := r.scanWebhooks(ctx, change, func(key string) { count(webhookSecrets, key) }, &damaged)
	if changed += n; err != nil {
		return nil, changed, err
	}
	n, err = r.scanFiles(ctx, change, count, &damaged)
	if changed += n; err != nil {
		return nil, changed, err
	}
	return usage, changed, damaged.err()
}

// old reports whether the key is in the ring but not the newest.
func (r *Rotation) old(key string) bool {
	return key != r.Ring.Newest() && slices.Contains(r.Ring.IDs(), key)
}

func (r *Rotation) reencryptRows(ctx context.Context, table encryption.EncryptedTable, values []encryption.EncryptedValue, damaged *undecryptable) (changed int, err error) {
	for some := range slices.Chunk(values, batch) {
		var was []encryption.EncryptedValue
		var now [][]byte
		for _, v := range some {
			reencrypted, err := r.reencrypt(v)
			if err != nil {
				if err = wrapped(table, v, err); damaged.skip(err) {
					continue
				}
				return changed, err
			}
			was, now = append(was, v), append(now, reencrypted)
		}
		n, err := r.Store.Reencrypt(ctx, table, was, now)
		if changed += n; err != nil {
			return changed, err
		}
	}
	return changed, nil
}

func (r *Rotation) reencrypt(v encryption.EncryptedValue) ([]byte, error) {
	bare, err := r.Ring.Open(v.CompanyID, v.Encrypted)
	if err != nil {
		return nil, err
	}
	return r.Ring.Seal(v.CompanyID, bare)
}

func wrapped(table encryption.EncryptedTable, v encryption.EncryptedValue, err error) error {
	return fmt.Errorf("%s %s: %w", table, v.ID, err)
}

func (r *Rotation) report(what string, found, changed int) {
	if r.Progress != nil {
		r.Progress(what, found, changed)
	}
}
