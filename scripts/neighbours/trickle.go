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
	// trickleEvery is the interval between two bytes of a slow connection.
	trickleEvery = 3 * time.Second
	// reconnectPause is the pause before a connection that the api closed is opened again.
	reconnectPause = 250 * time.Millisecond
)

// trickle opens connections in the background: each sends begin and then more every 3 s, reads
// nothing, and is opened again when the api has closed it. They end with ctx.
func (s *scenario) trickle(ctx context.Context, connections int, begin, more string) {
	for range connections {
		go func() {
			for ctx.Err() == nil {
				s.connect(ctx, begin, more)
				_ = service.Pause(ctx, reconnectPause)
			}
		}()
	}
}

// connect runs one slow connection until it or ctx ends.
func (s *scenario) connect(ctx context.Context, begin, more string) {
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "tcp", strings.TrimPrefix(s.client.url, "http://"))
	if err != nil {
		s.count("connections refused", 1)
		return
	}
	s.count("slow connections", 1)
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })() // unblocks a write
	for text := begin; ; text = more {
		if _, err := io.WriteString(conn, text); err != nil || service.Pause(ctx, trickleEvery) != nil {
			return
		}
	}
}
