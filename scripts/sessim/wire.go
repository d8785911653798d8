package sessim

import (
	"encoding/json"
	"net/http"
	"strconv"
	"strings"

	"email-gateway/scripts/sessim/sesmail"
)

// isSigned reports whether the request has a signature. It does not verify it.
func isSigned(r *http.Request) bool {
	return strings.HasPrefix(r.Header.Get("Authorization"), "AWS4-HMAC-SHA256")
}

// accessKey returns the id of the key that signed the request, "" if there is none.
func accessKey(r *http.Request) string {
	_, credential, _ := strings.Cut(r.Header.Get("Authorization"), "Credential=")
	id, _, _ := strings.Cut(credential, "/")
	return id
}

// setHead sets the headers of SES's responses. It assigns them directly because Set would change
// SES's spelling.
func setHead(w http.ResponseWriter, f Fault, contentType string, length int) http.Header {
	h := w.Header()
	h["x-amzn-RequestId"] = []string{sesmail.NewRequestID()}
	h["Content-Length"] = []string{strconv.Itoa(length)}
	if f.ErrorType != "" {
		h["x-amzn-ErrorType"] = []string{f.ErrorType}
	}
	if contentType != "" {
		h["Content-Type"] = []string{contentType}
	}
	return h
}

// writeFault writes the error response of an operation other than SendEmail.
func writeFault(w http.ResponseWriter, f Fault) {
	contentType, body := f.body("", f.Message)
	setHead(w, f, contentType, len(body))
	w.WriteHeader(f.Status)
	_, _ = w.Write(body) // the client may have disconnected
}

// writeJSON writes responses of the simulator's own endpoints and of GetAccount.
func writeJSON(w http.ResponseWriter, status int, answer any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(answer) // own types can always be encoded; the client may have disconnected
}
