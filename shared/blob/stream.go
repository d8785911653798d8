package blob

import (
	"context"
	"errors"
	"io"
)

// source is the content of a Put. It remembers its own error, to distinguish it from one of the
// storage, and ends with ctx.
type source struct {
	ctx context.Context
	r   io.Reader
	err error
}

func (s *source) Read(p []byte) (int, error) {
	if err := s.ctx.Err(); err != nil {
		return 0, err
	}
	n, err := s.r.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		s.err = err
	}
	return n, err
}

// reader is an open file.
type reader struct {
	io.ReadCloser
	ctx context.Context
	key string
}

func (r *reader) Read(p []byte) (int, error) {
	n, err := r.ReadCloser.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		err = failure(r.ctx, "read "+r.key, err)
	}
	return n, err
}
