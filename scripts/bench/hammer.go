package bench

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

	"email-gateway/shared/service"
)

// hammer makes requests over many connections at once, each connection one after the
// other. It is lean, since it shares the cores with what it measures: no header is parsed
// but the length, and connections are kept.
type hammer struct {
	addr        string
	connections int
	status      int // of every answer; another one is an error
	// request appends a whole request to dst; serial is another one each time.
	request func(dst []byte, serial int64) []byte
	serial  *atomic.Int64
}

// pounding is what a hammer saw.
type pounding struct {
	rate     float64 // answers per second
	answers  int
	p50, p99 time.Duration
}

// patience is how long one answer may take.
const patience = 30 * time.Second

// run makes requests for warm, and then for length, of which it tells. The meter, if not
// nil, runs during length.
func (h hammer) run(ctx context.Context, warm, length time.Duration, m *meter) (p pounding, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var measuring, over atomic.Bool
	waits := make([][]time.Duration, h.connections)
	var hammering sync.WaitGroup
	for i := range h.connections {
		hammering.Go(func() {
			if err := h.pound(ctx, &measuring, &over, &waits[i]); err != nil {
				cancel(err)
			}
		})
	}
	if service.Pause(ctx, warm) == nil {
		err = m.start()
		begun := time.Now()
		measuring.Store(true)
		_ = service.Pause(ctx, length) // context.Cause tells below
		measuring.Store(false)
		p.rate = 1 / time.Since(begun).Seconds()
		err = errors.Join(err, m.stop())
	}
	over.Store(true)
	hammering.Wait()
	if err := errors.Join(err, context.Cause(ctx)); err != nil {
		return pounding{}, err
	}
	all := slices.Concat(waits...)
	if len(all) == 0 {
		return pounding{}, errors.New("there was no answer in time")
	}
	slices.Sort(all)
	p.answers = len(all)
	p.rate *= float64(len(all))
	p.p50, p.p99 = all[len(all)/2], all[len(all)*99/100]
	return p, nil
}

// pound makes one request after the other over one connection.
func (h hammer) pound(ctx context.Context, measuring, over *atomic.Bool, waits *[]time.Duration) error {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", h.addr)
	if err != nil {
		return err
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	in := bufio.NewReader(conn)
	var out []byte
	for !over.Load() && ctx.Err() == nil {
		out = h.request(out[:0], h.serial.Add(1))
		begun := time.Now()
		if err := conn.SetDeadline(begun.Add(patience)); err != nil {
			return err
		}
		if _, err := conn.Write(out); err != nil {
			return fmt.Errorf("write request: %w", err)
		}
		if err := h.answer(in); err != nil {
			return err
		}
		if measuring.Load() {
			*waits = append(*waits, time.Since(begun))
		}
	}
	return nil
}

var lengthHeader = []byte("content-length:")

// answer reads one answer to its end.
func (h hammer) answer(in *bufio.Reader) error {
	line, err := in.ReadSlice('\n')
	if err != nil {
		return fmt.Errorf("read answer: %w", err)
	}
	if len(line) < 12 {
		return fmt.Errorf("read answer: it begins with %q", line)
	}
	status, err := strconv.Atoi(string(line[9:12]))
	if err != nil {
		return fmt.Errorf("read answer: it begins with %q", line)
	}
	length := -1
	for {
		line, err := in.ReadSlice('\n')
		if err != nil {
			return fmt.Errorf("read answer: %w", err)
		}
		if line = bytes.TrimSpace(line); len(line) == 0 {
			break
		}
		if len(line) > len(lengthHeader) && bytes.EqualFold(line[:len(lengthHeader)], lengthHeader) {
			if length, err = strconv.Atoi(string(bytes.TrimSpace(line[len(lengthHeader):]))); err != nil {
				return fmt.Errorf("read the length of an answer: %w", err)
			}
		}
	}
	if length < 0 {
		return errors.New("read answer: it has no Content-Length")
	}
	if status != h.status {
		text, _ := io.ReadAll(io.LimitReader(in, int64(min(length, 500)))) // what came of it is told
		return fmt.Errorf("the answer is %d %s", status, text)
	}
	if _, err := in.Discard(length); err != nil {
		return fmt.Errorf("read answer: %w", err)
	}
	return nil
}
