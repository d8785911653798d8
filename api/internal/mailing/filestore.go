package mailing

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/google/uuid"

	"email-gateway/api/internal/csvfile"
	"email-gateway/shared/keyring"
)

// Bucket stores files; see *blob.Bucket.
type Bucket interface {
	Put(ctx context.Context, key string, r io.Reader) error
	Get(ctx context.Context, key string) (io.ReadCloser, error)
	Delete(ctx context.Context, key string) error
	URL(key string) string
}

// FileStore stores uploaded files, encrypted with the ring that also encrypts CPFs, since the files
// may contain some.
type FileStore struct {
	Bucket Bucket
	Ring   keyring.Ring
}

// File is a stored upload. The zero File is none.
type File struct {
	Key  string
	URL  string
	Seen csvfile.Inspection
	// Bytes is the stored size.
	Bytes int64

	binding []byte // binding of the encryption
}

// FileKey is the storage key of a mailing's file.
func FileKey(company, mailing uuid.UUID) string {
	return fmt.Sprintf("mailings/%s/%s.csv", company, mailing)
}

// FileBinding is the encryption binding of a mailing's file.
func FileBinding(company, mailing uuid.UUID) []byte { return append(company[:], mailing[:]...) }

// ErrFileTooLarge: more than MaxFile bytes.
var ErrFileTooLarge = fmt.Errorf("the file is larger than %d bytes", MaxFile)

// Keep stores and inspects content. If the mailing is not accepted, the caller must drop the File,
// also after an error. The error is ErrFileTooLarge, that of content, or that of the storage.
func (s *FileStore) Keep(ctx context.Context, company, mailing uuid.UUID, content io.Reader) (File, error) {
	f := File{Key: FileKey(company, mailing), binding: FileBinding(company, mailing)}
	f.URL = s.Bucket.URL(f.Key)
	inspector := csvfile.NewInspector()
	plain := io.TeeReader(&limited{r: content, left: MaxFile}, inspector)
	encrypted, err := s.Ring.EncryptReader(plain, f.binding)
	if err != nil {
		return f, fmt.Errorf("encrypt file: %w", err)
	}
	stored := &counting{Reader: encrypted}
	if err := s.Bucket.Put(ctx, f.Key, stored); err != nil {
		return f, fmt.Errorf("store file: %w", err)
	}
	f.Bytes = stored.bytes
	f.Seen = inspector.Inspection()
	return f, nil
}

// counting counts the bytes read.
type counting struct {
	io.Reader
	bytes int64
}

func (c *counting) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	c.bytes += int64(n)
	return n, err
}

// limited returns ErrFileTooLarge beyond its limit.
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

// Reading is a stored file being read.
type Reading struct {
	*csvfile.Reader
	stored io.Closer
}

// Open opens a file and reads its header. The error is a *csvfile.FileError, or that of the
// storage. The caller closes the Reading.
func (s *FileStore) Open(ctx context.Context, f File, options csvfile.Options) (*Reading, error) {
	stored, err := s.Bucket.Get(ctx, f.Key)
	if err != nil {
		return nil, fmt.Errorf("read file back: %w", err)
	}
	plain, err := s.Ring.DecryptReader(stored, f.binding)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("decrypt file: %w", err), stored.Close())
	}
	reader, err := csvfile.Open(plain, f.Seen, options)
	if err != nil {
		_ = stored.Close() // err is the cause
		return nil, err
	}
	return &Reading{Reader: reader, stored: stored}, nil
}

// Close closes the stored file.
func (r *Reading) Close() error { return r.stored.Close() }

// Drop deletes the file. A file that does not exist is no error.
func (s *FileStore) Drop(ctx context.Context, f File) error {
	if f.Key == "" {
		return nil
	}
	if err := s.Bucket.Delete(ctx, f.Key); err != nil {
		return fmt.Errorf("drop file: %w", err)
	}
	return nil
}
