package response

import (
	"net/http"
	"time"
)

// writeTime limits writing a response from its first byte on, like the server's own limit.
const writeTime = time.Minute

// Writer gives a response writeTime from its first byte on, however long its handler has taken. The server sets the deadline
// when it has read the headers: the response of a handler that takes longer, such as one that stores attachments, would be
// lost after its rows are committed.
type Writer struct{ http.ResponseWriter }

// WriteHeader is called once, before the first byte.
func (w Writer) WriteHeader(status int) {
	setWriteDeadline(w.ResponseWriter, writeTime)
	w.ResponseWriter.WriteHeader(status)
}

// Unwrap is for http.ResponseController.
func (w Writer) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// Flush is for gin.
func (w Writer) Flush() {
	_ = http.NewResponseController(w.ResponseWriter).Flush() // a broken connection ends the request's context
}

func setWriteDeadline(w http.ResponseWriter, limit time.Duration) {
	// If the deadline cannot be set, the connection is broken.
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(limit))
}
