package encryption

import (
	"context"
	"errors"
	"fmt"

	"email-gateway/api/internal/config"
	"email-gateway/api/internal/ctl/command"
	"email-gateway/shared/blob"
	"email-gateway/shared/environment"
	"email-gateway/shared/keyring"
	"email-gateway/shared/store"
	"email-gateway/shared/store/installation"
)

// Settings holds the settings that decrypt what the api has encrypted.
type Settings struct {
	Ring       keyring.Ring   `env:"CPF_CNPJ_KEYS,required,notEmpty"`
	HashKey    config.HashKey `env:"CPF_CNPJ_HASH_KEY"`
	StorageURL string         `env:"STORAGE_URL,required,notEmpty"` // no default: in a wrong folder no person's files would be found
}

// Open reads the settings and opens the storage of the installation; the caller closes it.
func Open(ctx context.Context, c *command.Invocation, db *store.Store) (Settings, *blob.Bucket, error) {
	var s Settings
	f := environment.Read(c.Environ, &s)
	if err := f.Err(); err != nil {
		return s, nil, command.Usagef("this command needs the api's settings: %v", err)
	}
	bucket, err := blob.Open(ctx, s.StorageURL, blob.Options{Owner: installation.New(db.DB())})
	if err != nil {
		return s, nil, err
	}
	if err := bucket.Ping(ctx); err != nil {
		return s, nil, errors.Join(fmt.Errorf("cannot use the storage that STORAGE_URL names: %w", err), bucket.Close())
	}
	return s, bucket, nil
}
