// Package load sends requests to the gateway and measures how fast it answers.
package load

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"email-gateway/scripts/bench/environment"
	"email-gateway/shared/service"
)

// Generator sends requests over many connections concurrently, one after the other on each connection.
// It uses little CPU, because it shares the cores with the measured programs: it parses no header
// but the length, and keeps connections.
type Generator struct {
	Addr        string
	Connections int
	Status      int // of every response; another one is an error
	// request appends a whole request to dst; each call gets a new serial.
	Request func(dst []byte, serial int64) []byte
	Serial  *atomic.Int64
}

// Result is the result of a Generator.
type Result struct {
	Rate      float64 // responses per second
	Responses int
	P50, P99  time.Duration
}

// Run sends requests for warm, and then for length, for which it returns the result. The meter, if
// not nil, runs during length.
func (h Generator) Run(ctx context.Context, warm, length time.Duration, m *environment.Meter) (p Result, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var measuring, over atomic.Bool
	waits := make([][]time.Duration, h.Connections)
	var generating sync.WaitGroup
	for i := range h.Connections {
		generating.Go(func() {
			if err := h.Connect(ctx, &measuring, &over, &waits[i]); err != nil {
				cancel(err)
			}
		})
	}
	if service.Pause(ctx, warm) == nil {
		err = m.Start()
		start := time.Now()
		measuring.Store(true)
		_ = service.Pause(ctx, length) // context.Cause is checked below
		measuring.Store(false)
		p.Rate = 1 / time.Since(start).Seconds()
		err = errors.Join(err, m.Stop())
	}
	over.Store(true)
	generating.Wait()
	if err := errors.Join(err, context.Cause(ctx)); err != nil {
		return Result{}, err
	}
	all := slices.Concat(waits...)
	if len(all) == 0 {
		return Result{}, errors.New("there was no response in time")
	}
	slices.Sort(all)
	p.Responses = len(all)
	p.Rate *= float64(len(all))
	p.P50, p.P99 = all[len(all)/2], all[len(all)*99/100]
	return p, nil
}

// Connect sends one request after the other over one connection.
func (h Generator) Connect(ctx context.Context, measuring, over *atomic.Bool, waits *[]time.Duration) error {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", h.Addr)
	if err != nil {
		return err
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	in := bufio.NewReader(conn)
	var out []byte
	for !over.Load() && ctx.Err() == nil {
		out = h.Request(out[:0], h.Serial.Add(1))
		start := time.Now()
		if err := conn.SetDeadline(start.Add(environment.ResponseTimeout)); err != nil {
			return err
		}
		if _, err := conn.Write(out); err != nil {
			return fmt.Errorf("write request: %w", err)
		}
		if err := h.readResponse(in); err != nil {
			return err
		}
		if measuring.Load() {
			*waits = append(*waits, time.Since(start))
		}
	}
	return nil
}

var lengthHeader = []byte("content-length:")

// readResponse reads one response to its end.
func (h Generator) readResponse(in *bufio.Reader) error {
	line, err := in.ReadSlice('\n')
	if err != nil {
		return fmt.Errorf("read response: %w", err)
	}
	if len(line) < 12 {
		return fmt.Errorf("read response: it begins with %q", line)
	}
	status, err := strconv.Atoi(string(line[9:12]))
	if err != nil {
		return fmt.Errorf("read response: it begins with %q", line)
	}
	length := -1
	for {
		line, err := in.ReadSlice('\n')
		if err != nil {
			return fmt.Errorf("read response: %w", err)
		}
		if line = bytes.TrimSpace(line); len(line) == 0 {
			break
		}
		if len(line) > len(lengthHeader) && bytes.EqualFold(line[:len(lengthHeader)], lengthHeader) {
			if length, err = strconv.Atoi(string(bytes.TrimSpace(line[len(lengthHeader):]))); err != nil {
				return fmt.Errorf("read the length of a response: %w", err)
			}
		}
	}
	if length < 0 {
		return errors.New("read response: it has no Content-Length")
	}
	if status != h.Status {
		text, _ := io.ReadAll(io.LimitReader(in, int64(min(length, 500)))) // for the error message
		return fmt.Errorf("the response is %d %s", status, text)
	}
	if _, err := in.Discard(length); err != nil {
		return fmt.Errorf("read response: %w", err)
	}
	return nil
}
