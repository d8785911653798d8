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
	limit *silenceLimit
	key   string
}

func (r *reader) Read(p []byte) (int, error) {
	r.limit.begin()
	n, err := r.ReadCloser.Read(p)
	err = r.limit.end(err)
	if err != nil && !errors.Is(err, io.EOF) {
		err = failure(r.ctx, "read "+r.key, err)
	}
	return n, err
}

func (r *reader) Close() error {
	defer r.limit.release()
	return r.ReadCloser.Close()
}

// silence is how long the storage may send nothing: from the request to the header of its response, retries included, and in
// each read of the content. Between two reads the time is the caller's. The lines of a mailing are copied to Postgres while its
// file is read, and a COPY may have run for 1.7 s when a read begins. The api's statement_timeout, 10 s, ends a COPY that waits
// longer than this limit, so that a slow storage would look like an outage of the database. An upload may be as long without
// progress: the storage neither takes data nor responds.
const silence = 8 * time.Second

var errSilent = fmt.Errorf("the storage has not responded for %s", silence)

// silenceLimit cancels a request to a storage that is silent.
type silenceLimit struct {
	ctx    context.Context // of the request
	cancel context.CancelCauseFunc
	timer  *time.Timer
}

// limitSilence makes a silenceLimit whose time runs.
func limitSilence(ctx context.Context) *silenceLimit {
	l := &silenceLimit{}
	l.ctx, l.cancel = context.WithCancelCause(ctx)
	l.timer = time.AfterFunc(silence, func() { l.cancel(errSilent) })
	return l
}

// begin restarts the time: a read begins, or the storage has taken data.
func (l *silenceLimit) begin() { l.timer.Reset(silence) }

// end stops the time and replaces an error that the limit has caused.
func (l *silenceLimit) end(err error) error {
	l.timer.Stop()
	if err != nil && !errors.Is(err, io.EOF) && errors.Is(context.Cause(l.ctx), errSilent) {
		return errSilent
	}
	return err
}

func (l *silenceLimit) release() {
	l.timer.Stop()
	l.cancel(nil)
}

// sending is the body of an upload: the connection reads it as fast as the storage takes it.
type sending struct {
	io.Reader
	limit *silenceLimit
}

func (s *sending) Read(p []byte) (int, error) {
	s.limit.begin()
	return s.Reader.Read(p)
}
