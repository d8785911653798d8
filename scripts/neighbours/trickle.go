package neighbours

import (
	"context"
	"io"
	"net"
	"strings"
	"time"

	"email-gateway/shared/service"
)

const (
	// trickleEvery lies between two bytes of a slow connection.
	trickleEvery = 3 * time.Second
	// againPause is how soon a connection that the api closed is opened again.
	againPause = 250 * time.Millisecond
)

// trickle opens so many connections in the background: each sends begin at once and then more,
// every 3 s, reads nothing, and is opened again when the api has closed it. They end with ctx.
func (s *scene) trickle(ctx context.Context, connections int, begin, more string) {
	for range connections {
		go func() {
			for ctx.Err() == nil {
				s.connect(ctx, begin, more)
				_ = service.Pause(ctx, againPause)
			}
		}()
	}
}

// connect is one slow connection until it or ctx ends.
func (s *scene) connect(ctx context.Context, begin, more string) {
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "tcp", strings.TrimPrefix(s.client.url, "http://"))
	if err != nil {
		s.note("connections refused", 1)
		return
	}
	s.note("slow connections", 1)
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })() // a write may be under way
	for text := begin; ; text = more {
		if _, err := io.WriteString(conn, text); err != nil || service.Pause(ctx, trickleEvery) != nil {
			return
		}
	}
}
