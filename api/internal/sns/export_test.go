package sns

import (
	"net/http"
	"time"
)

// Internals that the tests access.
var NewVerifier = newVerifier

// At sets the verifier's clock.
func (v *Verifier) At(now time.Time) *Verifier {
	v.now = func() time.Time { return now }
	return v
}

// Cached returns the number of cached keys.
func (v *Verifier) Cached() int {
	v.certificates.mu.Lock()
	defer v.certificates.mu.Unlock()
	return len(v.certificates.keys)
}

// Unpaced removes the fetch limits.
func (v *Verifier) Unpaced() *Verifier {
	v.certificates.limiter = nil
	return v
}

// Canonical returns the signed text.
func Canonical(m Message) string { return string(m.canonical()) }

// CertificateURL validates a SigningCertURL for Amazon.
func CertificateURL(raw, topic string) error {
	_, err := allowedURLs{}.certificate(raw, topic)
	return err
}

// ConfirmationURL validates a SubscribeURL for Amazon.
func ConfirmationURL(raw, topic, token string) error {
	_, err := allowedURLs{}.confirmation(raw, topic, token)
	return err
}

// RoundTrip is a transport implemented by a function.
type RoundTrip func(*http.Request) (*http.Response, error)

// RoundTrip answers the request.
func (f RoundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
