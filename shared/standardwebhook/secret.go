// Package standardwebhook implements the formats of the Standard Webhooks specification, version 1.0.0:
// signing secrets, signatures, event filters, and which addresses an endpoint may have. The api
// creates endpoints with it; the worker signs and sends.
package standardwebhook

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"time"
)

const (
	secretPrefix = "whsec_"
	// secretBytes is the length of new secrets. The specification allows 24 to 64.
	secretBytes                    = 32
	leastSecretBytes               = 24
	mostSecretBytes                = 64
	signaturePrefix                = "v1,"
	HeaderID                       = "webhook-id"
	HeaderTimestamp                = "webhook-timestamp"
	HeaderSignature                = "webhook-signature"
	RotationTime     time.Duration = 24 * time.Hour // a replaced secret still signs for this long
)

// ErrSecret is returned by ParseSecret for text that is not a secret.
var ErrSecret = errors.New("must be whsec_ and the base64 of 24 to 64 bytes")

// Secret is the key that signs the requests to one endpoint.
type Secret struct{ key []byte }

// NewSecret returns a random secret.
func NewSecret() (Secret, error) {
	key := make([]byte, secretBytes)
	if _, err := rand.Read(key); err != nil {
		return Secret{}, fmt.Errorf("generate webhook secret: %w", err)
	}
	return Secret{key}, nil
}

// ParseSecret parses what Text returns. Its error does not contain the text.
func ParseSecret(text string) (Secret, error) {
	encoded, found := strings.CutPrefix(text, secretPrefix)
	key, err := base64.StdEncoding.DecodeString(encoded)
	if !found || err != nil || len(key) < leastSecretBytes || len(key) > mostSecretBytes {
		return Secret{}, ErrSecret
	}
	return Secret{key}, nil
}

// Text returns the secret as its owner configures it.
func (s Secret) Text() string { return secretPrefix + base64.StdEncoding.EncodeToString(s.key) }

// String keeps the secret out of printed values.
func (s Secret) String() string { return secretPrefix + "…" }

// GoString keeps the secret out of values printed with %#v.
func (s Secret) GoString() string { return s.String() }

// LogValue keeps the secret out of logs.
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.String()) }

// Signature returns the value of the header webhook-signature: one signature per secret, separated
// by spaces. A receiver accepts a message if any of them matches.
func Signature(secrets []Secret, id string, at time.Time, body []byte) string {
	signatures := make([]string, len(secrets))
	for i, s := range secrets {
		mac := hmac.New(sha256.New, s.key)
		_, _ = fmt.Fprintf(mac, "%s.%s.", id, Timestamp(at)) // a hash returns no error
		_, _ = mac.Write(body)
		signatures[i] = signaturePrefix + base64.StdEncoding.EncodeToString(mac.Sum(nil))
	}
	return strings.Join(signatures, " ")
}

// Timestamp returns the value of the header webhook-timestamp: the time of the attempt in Unix
// seconds.
func Timestamp(at time.Time) string { return strconv.FormatInt(at.Unix(), 10) }
