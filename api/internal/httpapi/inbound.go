package httpapi

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

// bodies receives request bodies: memory is accounted to the company as bytes arrive. Bodies
// above memoryBody, or without memory, go to disk.
type bodies struct {
	memory   *bodyMemory
	rendered *bodyMemory // of contents that requests make; nil = they make none
	spool    *spool.Dir  // nil = no disk
	pace     pace
	most     int64         // bytes of one body
	time     time.Duration // limits receiving one; 0 = bodyTime
	tooLarge problem
}

// inbound is a body being received.
type inbound struct {
	bodies  *bodies
	company uuid.UUID
	owner   *bodyOwner
	use     bodyUse // memory.mu
	body    *slowBody
	file    *spool.File
}

// limit runs before a handler that reads a body with readBody. It rejects a body whose
// Content-Length is too large, and releases the memory of the body, and of what is rendered, after the handler.
func (bs *bodies) limit(c *gin.Context) error {
	if c.Request.ContentLength > bs.most {
		return bs.tooLarge
	}
	v := visitOf(c)
	b := &inbound{bodies: bs}
	if v.caller != nil {
		b.company = v.caller.CompanyID
	}
	v.body = b
	defer b.release()
	ctx, release := bs.withRoom(c.Request.Context(), b.company)
	defer release()
	c.Request = c.Request.WithContext(ctx)
	c.Next()
	return nil
}

// release releases what the body uses.
func (b *inbound) release() {
	if b.owner != nil {
		b.bodies.memory.release(b)
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

// cut aborts receiving a body; it may be called from another goroutine.
func (b *inbound) cut() { b.body.cut() }

// readBody reads the whole request body.
func readBody(c *gin.Context) ([]byte, error) {
	text, size, err := receiveBody(c)
	b := visitOf(c).body
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
	if err := b.bodies.memory.load(c.Request.Context(), b, size); err != nil {
		return nil, err
	}
	text, err := b.file.Bytes()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", busy, err)
	}
	return text, nil
}

// receiveBody receives the whole request body in memory, or into b.file.
func receiveBody(c *gin.Context) (text []byte, size int64, err error) {
	v := visitOf(c)
	b := v.body
	v.bodyRead = true
	if err := liftWriteDeadline(c); err != nil {
		return nil, 0, err
	}
	defer extendWriteDeadline(c)
	b.body = newSlowBody(c, b.bodies.most, b.bodies.pace, cmp.Or(b.bodies.time, bodyTime))
	if err := b.bodies.memory.enter(b); err != nil {
		v.bodyRead = false
		return nil, 0, err
	}
	text, size, err = b.receive(c.Request.ContentLength)
	if b.file != nil {
		b.bodies.memory.shrink(b, 0)
	}
	b.bodies.memory.arrived(b)
	b.body.end()
	if err != nil {
		v.bodyRead = false
		closeAfterResponse(c)
		return nil, size, b.problem(err)
	}
	return text, size, nil
}

// Create creates a file for a part of the body.
func (b *inbound) Create() (*spool.File, error) {
	if b.bodies.spool == nil {
		return nil, busy
	}
	file, err := b.bodies.spool.Create()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", busy, err)
	}
	return file, nil
}

// receive reads the body into memory, or into b.file.
func (b *inbound) receive(length int64) (text []byte, size int64, err error) {
	room := int64(memoryBody + 1) // one byte more, to detect a larger body
	switch {
	case length > memoryBody && b.bodies.spool != nil:
		room = spoolPiece
	case length >= 0:
		room = min(room, length+1)
	}
	text = make([]byte, 0, min(freeMemory, room))
	for {
		if len(text) == cap(text) {
			if text, err = b.makeRoom(text, room); err != nil {
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

// makeRoom enlarges a full buffer, or writes it to disk.
func (b *inbound) makeRoom(text []byte, room int64) ([]byte, error) {
	have := int64(cap(text))
	if next := min(2*have, room); b.file == nil && next > have && b.bodies.memory.grow(b, next-have) {
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
		b.bodies.memory.shrink(b, spoolPiece-freeMemory)
		return make([]byte, 0, spoolPiece), nil
	}
	return text[:0], nil
}

func (b *inbound) write(text []byte) error {
	if err := b.bodies.memory.spill(b, int64(len(text))); err != nil {
		return err
	}
	if _, err := b.file.Write(text); err != nil {
		return fmt.Errorf("%w: %w", busy, err)
	}
	return nil
}

// problem maps the error of a body that was not received.
func (b *inbound) problem(err error) error {
	var tooLarge *http.MaxBytesError
	var known problem
	switch {
	case errors.As(err, &tooLarge):
		return b.bodies.tooLarge
	case errors.As(err, &known):
		return err
	case b.body.wasCut():
		return busy
	case errors.Is(err, os.ErrDeadlineExceeded):
		return bodyTooSlow
	}
	return fmt.Errorf("%w: %w", unreadable, err)
}
