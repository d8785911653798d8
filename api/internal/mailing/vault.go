package mailing

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/google/uuid"

	"email-gateway/api/internal/csvfile"
	"email-gateway/api/internal/keyring"
)

// Bucket is where files are stored. *blob.Bucket is one.
type Bucket interface {
	Put(ctx context.Context, key string, r io.Reader) error
	Get(ctx context.Context, key string) (io.ReadCloser, error)
	Delete(ctx context.Context, key string) error
	URL(key string) string
}

// Vault keeps the uploaded files, encrypted with the ring that CPFs are encrypted
// with: they may hold some.
type Vault struct {
	Bucket Bucket
	Ring   keyring.Ring
}

// File is an uploaded file, stored. The zero File is none.
type File struct {
	Key  string
	URL  string
	Seen csvfile.Inspection
	// Bytes is the size of what is stored.
	Bytes int64

	binding []byte // of the encryption: whose file it is
}

// FileKey is the key that a mailing's file is stored under.
func FileKey(company, mailing uuid.UUID) string {
	return fmt.Sprintf("mailings/%s/%s.csv", company, mailing)
}

// FileBinding is what the encryption of a mailing's file is bound to.
func FileBinding(company, mailing uuid.UUID) []byte { return append(company[:], mailing[:]...) }

// ErrFileTooLarge: more than MaxFile bytes.
var ErrFileTooLarge = fmt.Errorf("the file is larger than %d bytes", MaxFile)

// Keep stores content to its end and says what kind of file it is. The File must be
// dropped if nothing comes of it, after an error too. The error is ErrFileTooLarge,
// content's own, or the storage's.
func (v *Vault) Keep(ctx context.Context, company, mailing uuid.UUID, content io.Reader) (File, error) {
	f := File{Key: FileKey(company, mailing), binding: FileBinding(company, mailing)}
	f.URL = v.Bucket.URL(f.Key)
	inspector := csvfile.NewInspector()
	plain := io.TeeReader(&limited{r: content, left: MaxFile}, inspector)
	sealed, err := v.Ring.EncryptReader(plain, f.binding)
	if err != nil {
		return f, fmt.Errorf("encrypt file: %w", err)
	}
	stored := &counting{Reader: sealed}
	if err := v.Bucket.Put(ctx, f.Key, stored); err != nil {
		return f, fmt.Errorf("store file: %w", err)
	}
	f.Bytes = stored.bytes
	f.Seen = inspector.Inspection()
	return f, nil
}

// counting counts what is read.
type counting struct {
	io.Reader
	bytes int64
}

func (c *counting) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	c.bytes += int64(n)
	return n, err
}

// limited ends with ErrFileTooLarge instead of going on beyond its limit.
type limited struct {
	r    io.Reader
	left int64
}

func (l *limited) Read(p []byte) (int, error) {
	n, err := l.r.Read(p)
	if l.left -= int64(n); l.left < 0 {
		return 0, ErrFileTooLarge
	}
	return n, err
}

// Reading is a file that is being read back.
type Reading struct {
	*csvfile.Reader
	stored io.Closer
}

// Open reads a file up to its header. The error is a *csvfile.FileError, or the
// storage's. The caller closes the Reading.
func (v *Vault) Open(ctx context.Context, f File, options csvfile.Options) (*Reading, error) {
	stored, err := v.Bucket.Get(ctx, f.Key)
	if err != nil {
		return nil, fmt.Errorf("read file back: %w", err)
	}
	plain, err := v.Ring.DecryptReader(stored, f.binding)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("decrypt file: %w", err), stored.Close())
	}
	reader, err := csvfile.Open(plain, f.Seen, options)
	if err != nil {
		_ = stored.Close() // err says what is the matter
		return nil, err
	}
	return &Reading{Reader: reader, stored: stored}, nil
}

// Close ends the reading.
func (r *Reading) Close() error { return r.stored.Close() }

// Drop takes the file away. It is no error when it was never there.
func (v *Vault) Drop(ctx context.Context, f File) error {
	if f.Key == "" {
		return nil
	}
	if err := v.Bucket.Delete(ctx, f.Key); err != nil {
		return fmt.Errorf("drop file: %w", err)
	}
	return nil
}
