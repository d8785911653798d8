package rabbitmq_test

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"email-gateway/shared/waittest"
)

// A channel that does not confirm a message is closed, and a new one is opened on the same connection, although no caller waits
// as long as the channel does: with the messages of a channel that confirms nothing, and with one message among others that are
// confirmed.
func TestPublisher_Unconfirmed(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name string
		lost func(tag uint64) bool
	}{
		{"all", func(uint64) bool { return true }},
		{"the first of many", func(tag uint64) bool { return tag == 1 }},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			s := mailing(t)
			proxy := startUnconfirming(t, &s, test.lost)
			proxy.losing.Store(true)
			p := s.publisher()
			waittest.Until(t, "a message is written and not confirmed", func() bool {
				if _, err := p.Publish(within(t, time.Second), s.task()); !errors.Is(err, context.DeadlineExceeded) {
					t.Fatalf("published: %v", err)
				}
				return proxy.dropped.Load() > 0
			})
			proxy.losing.Store(false)
			opened := proxy.opened.Load()
			waittest.Until(t, "a message is confirmed on another channel", func() bool {
				_, err := p.Publish(within(t, 500*time.Millisecond), s.task())
				return err == nil && proxy.opened.Load() > opened
			})
			if n := s.log.Count("connection to rabbitmq lost"); n > 0 {
				t.Errorf("the connection was lost %d times", n)
			}
		})
	}
}

// unconfirming is a proxy that drops confirms of the channels that are opened while losing is set, those whose tag is lost.
type unconfirming struct {
	losing          atomic.Bool
	lost            func(tag uint64) bool
	opened, dropped atomic.Int64
}

// startUnconfirming starts the proxy, through which s then connects.
func startUnconfirming(t *testing.T, s *fixture, lost func(tag uint64) bool) *unconfirming {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	user, rest, _ := strings.Cut(s.url, "@")
	address, vhost, _ := strings.Cut(rest, "/")
	s.conn = parse(t, user+"@"+listener.Addr().String()+"/"+vhost)
	proxy := &unconfirming{lost: lost}
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", address)
			if err != nil {
				_ = client.Close()
				return
			}
			go func() { _, _ = io.Copy(server, client); _ = server.Close() }()
			go func() { proxy.forward(client, server); _ = client.Close() }()
		}
	}()
	return proxy
}

// forward copies the frames of the broker. A frame is its type (1 byte), its channel (2), the size of the payload (4), the
// payload and an end mark (1). The payload of a method, type 1, begins with its class (2) and its method (2).
func (u *unconfirming) forward(client io.Writer, server io.Reader) {
	const openOK, ack = 20<<16 | 11, 60<<16 | 80
	silent := make(map[uint16]bool)
	for {
		header := make([]byte, 7)
		if _, err := io.ReadFull(server, header); err != nil {
			return
		}
		channel := binary.BigEndian.Uint16(header[1:])
		rest := make([]byte, binary.BigEndian.Uint32(header[3:])+1)
		if _, err := io.ReadFull(server, rest); err != nil {
			return
		}
		if header[0] == 1 && len(rest) > 4 {
			switch method := binary.BigEndian.Uint32(rest); {
			case method == openOK:
				silent[channel] = u.losing.Load()
				u.opened.Add(1)
			case method == ack && silent[channel] && u.lost(binary.BigEndian.Uint64(rest[4:])):
				u.dropped.Add(1)
				header, rest = []byte{8, 0, 0, 0, 0, 0, 0}, []byte{0xCE} // a heartbeat: the broker sends none beside confirms
			}
		}
		if _, err := client.Write(append(header, rest...)); err != nil {
			return
		}
	}
}
