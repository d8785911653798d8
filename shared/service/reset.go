package service

import (
	"context"
	"net"
)

// connKey is the key of a request's connection in its context.
type connKey struct{}

// withConn is the ConnContext of the servers.
func withConn(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, c)
}

// ResetOnClose decides what the client gets when the connection of a request is closed: a reset (RST), or what was written
// and then the end of the stream (FIN), which is the default. A client or proxy that speaks HTTP/1.0 takes the end of the
// stream for the end of a response without Content-Length. A response that is written in pieces is therefore reset on close until
// it is complete, whatever closes the connection: the handler, the end of a drain, or the end of the process.
// ctx is that of a request to a server of NewHTTP, with any other it has no effect. These servers have no TLS, with which the
// alert close_notify would be such an end before the reset.
func ResetOnClose(ctx context.Context, reset bool) {
	conn, ok := ctx.Value(connKey{}).(*net.TCPConn)
	if !ok {
		return
	}
	seconds := -1 // the default
	if reset {
		seconds = 0
	}
	_ = conn.SetLinger(seconds) // fails if the connection is closed already
}
