package sns

import (
	"net/http"
	"time"
)

// What the tests look at from outside.
var NewVerifier = newVerifier

// At sets the verifier's clock.
func (v *Verifier) At(now time.Time) *Verifier {
	v.now = func() time.Time { return now }
	return v
}

// Cached is how many keys are kept.
func (v *Verifier) Cached() int {
	v.certificates.mu.Lock()
	defer v.certificates.mu.Unlock()
	return len(v.certificates.keys)
}

// Unpaced lets it fetch as often as it likes.
func (v *Verifier) Unpaced() *Verifier {
	v.certificates.limiter = nil
	return v
}

// Canonical is the text that is signed.
func Canonical(m Message) string { return string(m.canonical()) }

// CertificatePlace checks a SigningCertURL by the rule for Amazon.
func CertificatePlace(raw, topic string) error {
	_, err := places{}.certificate(raw, topic)
	return err
}

// ConfirmationPlace checks a SubscribeURL by the rule for Amazon.
func ConfirmationPlace(raw, topic, token string) error {
	_, err := places{}.confirmation(raw, topic, token)
	return err
}

// RoundTrip is a transport made of a function.
type RoundTrip func(*http.Request) (*http.Response, error)

// RoundTrip answers the request.
func (f RoundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
