package reqbody

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/google/uuid"

	"email-gateway/api/internal/httpapi/problem"
	"email-gateway/api/internal/httpapi/reqctx"
	"email-gateway/api/internal/spool"
)

const (
	// memoryBody is the largest body that is received in memory (bytes).
	memoryBody = 1 << 20
	// spoolPiece is the buffer of a body that is received to disk (bytes).
	spoolPiece = 32 << 10
	// bodyTime limits receiving a body, like the server's own limit: 2 MiB at 35 KiB/s.
	bodyTime = time.Minute
)

// inbound is a body being received.
type inbound struct {
	receiver *Receiver
	company  uuid.UUID
	owner    *bodyOwner
	use      bodyUse // memory.mu
	body     *SlowBody
	file     *spool.File
}

// release releases what the body uses.
func (b *inbound) release() {
	if b.owner != nil {
		b.receiver.Memory.release(b)
		b.owner = nil
	}
	b.closeFile()
}

func (b *inbound) closeFile() {
	if b.file != nil {
		_ = b.file.Close() // unlinked: closing it frees the space
		b.file = nil
	}
}

// abort aborts receiving a body; it may be called from another goroutine.
func (b *inbound) abort() { b.body.Abort() }

// Read reads the whole request body.
func Read(c *gin.Context) ([]byte, error) {
	text, size, err := receiveBody(c)
	b := inboundOf(c)
	defer b.closeFile()
	if err != nil {
		return nil, err
	}
	return b.loadFile(c, text, size)
}

// loadFile returns a complete body: the text that was received in memory, or the file's content.
func (b *inbound) loadFile(c *gin.Context, text []byte, size int64) ([]byte, error) {
	if b.file == nil {
		return text, nil
	}
	if err := b.receiver.Memory.load(c.Request.Context(), b, size); err != nil {
		return nil, err
	}
	text, err := b.file.Bytes()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", problem.Busy, err)
	}
	return text, nil
}

// receiveBody receives the whole request body in memory, or into b.file.
func receiveBody(c *gin.Context) (text []byte, size int64, err error) {
	v := reqctx.StateOf(c)
	b := inboundOf(c)
	v.BodyRead = true
	b.body = NewSlowBody(c, b.receiver.Most, b.receiver.Pace, cmp.Or(b.receiver.Time, bodyTime))
	if err := b.receiver.Memory.enter(b); err != nil {
		v.BodyRead = false
		return nil, 0, err
	}
	text, size, err = b.receive(c.Request.ContentLength)
	if b.file != nil {
		b.receiver.Memory.shrink(b, 0)
	}
	b.receiver.Memory.arrived(b)
	b.body.end()
	if err != nil {
		v.BodyRead = false
		CloseAfterResponse(c)
		return nil, size, b.problem(err)
	}
	return text, size, nil
}

// Create creates a file for a part of the body.
func (b *inbound) Create() (*spool.File, error) {
	if b.receiver.Spool == nil {
		return nil, problem.Busy
	}
	file, err := b.receiver.Spool.Create()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", problem.Busy, err)
	}
	return file, nil
}

// receive reads the body into memory, or into b.file.
func (b *inbound) receive(length int64) (text []byte, size int64, err error) {
	room := int64(memoryBody + 1) // one byte more, to detect a larger body
	switch {
	case length > memoryBody && b.receiver.Spool != nil:
		room = spoolPiece
	case length >= 0:
		room = min(room, length+1)
	}
	text = make([]byte, 0, min(freeMemory, room))
	for {
		if len(text) == cap(text) {
			if text, err = b.enlarge(text, room); err != nil {
				return nil, size, err
			}
		}
		n, err := b.body.Read(text[len(text):cap(text)])
		text, size = text[:len(text)+n], size+int64(n)
		switch {
		case errors.Is(err, io.EOF):
			if b.file != nil {
				err = b.write(text)
				return nil, size, err
			}
			return text, size, nil
		case err != nil:
			return nil, size, err
		}
	}
}

// enlarge enlarges a full buffer, or writes it to disk.
func (b *inbound) enlarge(text []byte, room int64) ([]byte, error) {
	have := int64(cap(text))
	if next := min(2*have, room); b.file == nil && next > have && b.receiver.Memory.grow(b, next-have) {
		larger := make([]byte, len(text), next)
		copy(larger, text)
		return larger, nil
	}
	if b.file == nil {
		file, err := b.Create()
		if err != nil {
			return nil, err
		}
		b.file = file
	}
	if err := b.write(text); err != nil {
		return nil, err
	}
	if have > spoolPiece {
		b.receiver.Memory.shrink(b, spoolPiece-freeMemory)
		return make([]byte, 0, spoolPiece), nil
	}
	return text[:0], nil
}

func (b *inbound) write(text []byte) error {
	if err := b.receiver.Memory.spill(b, int64(len(text))); err != nil {
		return err
	}
	if _, err := b.file.Write(text); err != nil {
		return fmt.Errorf("%w: %w", problem.Busy, err)
	}
	return nil
}

// problem maps the error of a body that was not received.
func (b *inbound) problem(err error) error {
	var tooLarge *http.MaxBytesError
	var known problem.Problem
	switch {
	case errors.As(err, &tooLarge):
		return b.receiver.TooLarge
	case errors.As(err, &known):
		return err
	case b.body.Aborted():
		return problem.Busy
	case errors.Is(err, os.ErrDeadlineExceeded):
		return TooSlow
	}
	return fmt.Errorf("%w: %w", Unreadable, err)
}
