package sessim

import (
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
)

// isSigned reports whether the request carries a signature. Which, is not checked.
func isSigned(r *http.Request) bool {
	return strings.HasPrefix(r.Header.Get("Authorization"), "AWS4-HMAC-SHA256")
}

// setHead sets the headers of SES's answers. They are assigned directly because Set
// would change the spelling that SES uses.
func setHead(w http.ResponseWriter, f Fault, contentType string, length int) http.Header {
	h := w.Header()
	h["x-amzn-RequestId"] = []string{newRequestID()}
	h["Content-Length"] = []string{strconv.Itoa(length)}
	if f.ErrorType != "" {
		h["x-amzn-ErrorType"] = []string{f.ErrorType}
	}
	if contentType != "" {
		h["Content-Type"] = []string{contentType}
	}
	return h
}

// writeFault answers an operation other than SendEmail.
func writeFault(w http.ResponseWriter, f Fault) {
	contentType, body := f.body("", f.Message)
	setHead(w, f, contentType, len(body))
	w.WriteHeader(f.Status)
	_, _ = w.Write(body) // whether the client still listens is its affair
}

// writeJSON answers in the simulator's own name, and GetAccount.
func writeJSON(w http.ResponseWriter, status int, answer any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(answer) // our own types always encode; the client may be gone
}
