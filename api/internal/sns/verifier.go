// Package sns receives Amazon SNS messages over HTTP: it parses the envelope, verifies the signature
// and confirms subscriptions. The handler of /v1/ses/events uses it; package sesevent parses the
// messages.
//
// Anybody can post to that path. So nothing is fetched for a topic that is not configured or from a
// host that is not Amazon's, and a message is accepted only if it is signed with the key that Amazon
// serves there.
package sns

import (
	"context"
	"crypto"
	"crypto/fips140"
	"crypto/rsa"
	"crypto/sha1" //nolint:gosec // what SNS signs version 1 with
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"time"
)

var (
	// ErrTopic: the topic is not configured.
	ErrTopic = errors.New("topic is not on the list")
	// ErrForged: the message is not signed by SNS, or the signature cannot be verified.
	ErrForged = errors.New("not signed by SNS")
	// ErrStale: the signature is valid, but the message is so old that it must be a replay.
	ErrStale = errors.New("older than SNS delivers")
	// ErrUnreachable: Amazon did not answer. The message may be valid.
	ErrUnreachable = errors.New("SNS cannot be reached")
)

// MaxAge is the maximum age of a message. SNS retries for an hour at most, and a dead-letter queue keeps
// undelivered messages for 14 days. Processed messages are remembered for longer than this, so that
// a replayed one has no effect.
const MaxAge = 21 * 24 * time.Hour

// Params are the parameters of a Verifier.
type Params struct {
	// Topics are the ARNs whose messages are accepted.
	Topics []string
	// Trusted is the URL of a simulator that replaces Amazon: certificates and confirmations are then
	// fetched only below it. nil means Amazon.
	Trusted *url.URL
	// SHA256Only rejects signatures of version 1, which use SHA-1.
	SHA256Only bool
}

// Verifier verifies SNS messages. It is safe for concurrent use.
type Verifier struct {
	topics       []string
	allowedURLs  allowedURLs
	sha256Only   bool
	client       *http.Client
	certificates *certificates
	now          func() time.Time
}

// New returns a Verifier.
func New(p Params) *Verifier { return newVerifier(p, nil) }

// newVerifier takes the transport from a test; nil is the default.
func newVerifier(p Params, transport http.RoundTripper) *Verifier {
	client := newClient(transport)
	return &Verifier{
		topics: p.Topics, allowedURLs: allowedURLs{trusted: p.Trusted}, sha256Only: p.SHA256Only,
		client: client, certificates: newCertificates(client), now: time.Now,
	}
}

// Verify returns nil if SNS signed the message, or one of the four errors above.
func (v *Verifier) Verify(ctx context.Context, m Message) error {
	if !slices.Contains(v.topics, m.TopicARN) {
		return ErrTopic
	}
	hash, err := v.hash(m.SignatureVersion)
	if err != nil {
		return err
	}
	signature, err := base64.StdEncoding.DecodeString(m.Signature)
	if err != nil {
		return fmt.Errorf("%w: Signature is not base64", ErrForged)
	}
	certificateURL, err := v.allowedURLs.certificate(m.SigningCertURL, m.TopicARN)
	if err != nil {
		return fmt.Errorf("%w: SigningCertURL %w", ErrForged, err)
	}
	key, err := v.certificates.key(ctx, certificateURL, m.Sender, v.now())
	if err != nil {
		return err
	}
	if err := check(key, hash, m.canonical(), signature); err != nil {
		return err
	}
	if v.now().Sub(m.sentAt) > MaxAge {
		return ErrStale
	}
	return nil
}

// hash returns the hash of a signature version.
func (v *Verifier) hash(version string) (crypto.Hash, error) {
	switch {
	case version == "2":
		return crypto.SHA256, nil
	case version != "1":
		return 0, fmt.Errorf("%w: SignatureVersion is neither 1 nor 2", ErrForged)
	case v.sha256Only:
		return 0, fmt.Errorf("%w: SignatureVersion 1 is not accepted here; set the topic's attribute SignatureVersion to 2", ErrForged)
	case fips140.Enforced():
		return 0, fmt.Errorf("%w: SignatureVersion 1 uses SHA-1, which this process must not use; set the topic's attribute SignatureVersion to 2", ErrForged)
	}
	return crypto.SHA1, nil
}

func check(key *rsa.PublicKey, hash crypto.Hash, text, signature []byte) error {
	var digest []byte
	if hash == crypto.SHA1 {
		sum := sha1.Sum(text) //nolint:gosec // as above
		digest = sum[:]
	} else {
		sum := sha256.Sum256(text)
		digest = sum[:]
	}
	if err := rsa.VerifyPKCS1v15(key, hash, digest, signature); err != nil {
		return fmt.Errorf("%w: the signature does not match the message", ErrForged)
	}
	return nil
}
