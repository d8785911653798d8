package blob

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"
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
	ctx   context.Context // of the caller of Get
	limit *readLimit
	key   string
	calls calls

	buffer []byte // of reads that may end after their caller has given up
	lost   error  // of such a read, which closes the file when it ends
}

// readBuffer is the most that is read of a folder at a time: an encrypted file is read in such chunks.
const readBuffer = 64 << 10

func (r *reader) Read(p []byte) (n int, err error) {
	if r.calls == nil {
		n, err = r.read(p)
	} else {
		n, err = r.readInTime(p)
	}
	if err != nil && !errors.Is(err, io.EOF) {
		err = failure(r.ctx, "read "+r.key, err)
	}
	return n, err
}

func (r *reader) read(p []byte) (int, error) {
	r.limit.begin()
	n, err := r.ReadCloser.Read(p)
	return n, r.limit.end(err)
}

// readInTime reads into a buffer of its own, as the caller may use p again while a hanging read still writes to its buffer.
func (r *reader) readInTime(p []byte) (int, error) {
	if r.lost != nil {
		return 0, r.lost
	}
	if size := min(len(p), readBuffer); len(r.buffer) < size {
		r.buffer = make([]byte, size)
	}
	type result struct {
		n   int
		err error
	}
	var got result
	into := r.buffer[:min(len(p), readBuffer)]
	begun, err := r.calls.run(r.ctx, readTimeout, func() error {
		got.n, got.err = r.read(into)
		return nil
	}, func() { _ = r.close() })
	if err != nil {
		if begun {
			r.lost = err
		}
		return 0, err
	}
	return copy(p, into[:got.n]), got.err
}

func (r *reader) Close() error {
	if r.lost != nil {
		return nil
	}
	return r.close()
}

func (r *reader) close() error {
	defer r.limit.release()
	return r.ReadCloser.Close()
}

// readTimeout is how long the storage may send nothing: from the request to the header of its response, retries
// included, and in each read of the content. Between two reads the time is the caller's. The lines of a mailing are
// copied to Postgres while its file is read, and a COPY may have run for 1.7 s when a read begins. The api's
// statement_timeout, 10 s, ends a COPY that waits longer than this limit, so that a slow storage would look like an
// outage of the database.
const readTimeout = 8 * time.Second

var errSilent = fmt.Errorf("the storage has sent nothing for %s", readTimeout)

// readLimit cancels a request to the storage that sends nothing for readTimeout.
type readLimit struct {
	ctx    context.Context // of the request
	cancel context.CancelCauseFunc
	timer  *time.Timer
}

// limitRead makes a readLimit whose first read has begun.
func limitRead(ctx context.Context) *readLimit {
	l := &readLimit{}
	l.ctx, l.cancel = context.WithCancelCause(ctx)
	l.timer = time.AfterFunc(readTimeout, func() { l.cancel(errSilent) })
	return l
}

func (l *readLimit) begin() { l.timer.Reset(readTimeout) }

// end ends a read and replaces its error if the limit has caused it.
func (l *readLimit) end(err error) error {
	l.timer.Stop()
	if err != nil && !errors.Is(err, io.EOF) && errors.Is(context.Cause(l.ctx), errSilent) {
		return errSilent
	}
	return err
}

func (l *readLimit) release() {
	l.timer.Stop()
	l.cancel(nil)
}
