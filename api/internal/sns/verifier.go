// Package sns takes messages of Amazon SNS that come over HTTP: it reads their
// envelope, checks who sent them, and confirms subscriptions. The handler of
// /v1/ses/events uses it; what the messages say is package sesevent's business.
//
// Anybody can post to that path. So nothing is fetched for a topic that is not on the
// list, nothing at all from a host that is not Amazon's, and a message counts only
// under a signature of the key that Amazon shows there.
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
	// ErrTopic: the message is of a topic that is not on the list.
	ErrTopic = errors.New("topic is not on the list")
	// ErrForged: the message was not signed by SNS, or cannot be shown to have been.
	ErrForged = errors.New("not signed by SNS")
	// ErrStale: the signature is good and the message so old that it must have been
	// kept by somebody.
	ErrStale = errors.New("older than SNS delivers")
	// ErrUnreachable: Amazon did not answer. The message may be good.
	ErrUnreachable = errors.New("SNS cannot be reached")
)

// MaxAge is how old a message may be. SNS tries for an hour, and a dead letter queue
// keeps what it could not deliver for 14 days. Messages are remembered for longer
// than this, so that an old one that somebody recorded does nothing twice.
const MaxAge = 21 * 24 * time.Hour

// Params are what a Verifier is made from.
type Params struct {
	// Topics are the ARNs whose messages are taken.
	Topics []string
	// Trusted is where a simulator is, instead of Amazon: certificates and confirmations
	// are then fetched below this URL and from nowhere else. nil is the rule for Amazon.
	Trusted *url.URL
	// SHA256Only refuses signatures of version 1, which are made with SHA-1.
	SHA256Only bool
}

// Verifier tells SNS's messages from others. It is safe for concurrent use.
type Verifier struct {
	topics       []string
	places       places
	sha256Only   bool
	client       *http.Client
	certificates *certificates
	now          func() time.Time
}

// New makes a Verifier.
func New(p Params) *Verifier { return newVerifier(p, nil) }

// newVerifier takes the transport from a test; nil is the usual one.
func newVerifier(p Params, transport http.RoundTripper) *Verifier {
	client := newClient(transport)
	return &Verifier{
		topics: p.Topics, places: places{trusted: p.Trusted}, sha256Only: p.SHA256Only,
		client: client, certificates: newCertificates(client), now: time.Now,
	}
}

// Verify says whether the message is SNS's: nil, or an error that is one of the four.
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
	place, err := v.places.certificate(m.SigningCertURL, m.TopicARN)
	if err != nil {
		return fmt.Errorf("%w: SigningCertURL %w", ErrForged, err)
	}
	key, err := v.certificates.key(ctx, place, m.Sender, v.now())
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

// hash is that of a signature version.
func (v *Verifier) hash(version string) (crypto.Hash, error) {
	switch {
	case version == "2":
		return crypto.SHA256, nil
	case version != "1":
		return 0, fmt.Errorf("%w: SignatureVersion is neither 1 nor 2", ErrForged)
	case v.sha256Only:
		return 0, fmt.Errorf("%w: SignatureVersion 1 is not taken here; set the topic's attribute SignatureVersion to 2", ErrForged)
	case fips140.Enforced():
		return 0, fmt.Errorf("%w: SignatureVersion 1 uses SHA-1, which this process may not; set the topic's attribute SignatureVersion to 2", ErrForged)
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
		return fmt.Errorf("%w: the signature is not of this message", ErrForged)
	}
	return nil
}
