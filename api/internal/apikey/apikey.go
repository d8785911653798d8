// Package apikey is the shape of the keys that tenants' programs show: how one is
// made, written and read. The api reads them from requests; gatewayctl makes them.
package apikey

import (
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"strings"
)

// Scopes are what a key may be allowed to do.
const (
	EmailsSend        = "emails:send"
	EmailsRead        = "emails:read"
	MailingsWrite     = "mailings:write"
	MailingsRead      = "mailings:read"
	RecipientsWrite   = "recipients:write"
	SuppressionsWrite = "suppressions:write"
	DeadLettersWrite  = "deadletters:write"
)

// Scopes lists every scope there is.
func Scopes() []string {
	return []string{
		EmailsSend, EmailsRead, MailingsWrite, MailingsRead,
		RecipientsWrite, SuppressionsWrite, DeadLettersWrite,
	}
}

// ErrSyntax is what Parse says of anything that is not a key.
var ErrSyntax = errors.New("is not an API key")

// Key is a key in clear. It is shown to its owner once, when it is made; what is
// kept of it is ID and SecretSHA256.
type Key struct {
	Environment string // says at a glance which system the key is for: production, staging, dev
	ID          string // public: it stands in logs and in gatewayctl's lists
	Secret      string
}

const idLength = 16 // 80 bits of base32: no two keys are ever given the same

var environmentPattern = regexp.MustCompile(`^[a-z0-9]{1,16}$`)

// New makes a key of 260 random bits. Because nobody can guess such a secret, a
// plain SHA-256 of it is enough to store, and cheap enough to compare per request.
func New(environment string) (Key, error) {
	if !environmentPattern.MatchString(environment) {
		return Key{}, fmt.Errorf("environment %q must be 1 to 16 of a-z and 0-9", environment)
	}
	return Key{
		Environment: environment,
		ID:          strings.ToLower(rand.Text()[:idLength]),
		Secret:      strings.ToLower(rand.Text() + rand.Text()),
	}, nil
}

// maxLength bounds what Parse looks at; New makes at most 88 characters.
const maxLength = 256

// Parse reads "gw_<environment>_<id>_<secret>". Whether there is such a key is the
// database's to say.
func Parse(text string) (Key, error) {
	parts := strings.Split(text[:min(len(text), maxLength+1)], "_")
	if len(text) > maxLength || len(parts) != 4 || parts[0] != "gw" {
		return Key{}, ErrSyntax
	}
	for _, part := range parts[1:] {
		if part == "" || strings.ContainsFunc(part, isNotLowerOrDigit) {
			return Key{}, ErrSyntax
		}
	}
	return Key{Environment: parts[1], ID: parts[2], Secret: parts[3]}, nil
}

// String is the key as it is shown to its owner and sent with requests.
func (k Key) String() string {
	return "gw_" + k.Environment + "_" + k.ID + "_" + k.Secret
}

// SecretSHA256 is the form in which the secret is stored.
func (k Key) SecretSHA256() []byte {
	sum := sha256.Sum256([]byte(k.Secret))
	return sum[:]
}

// LogValue keeps the secret out of a log that a key is given to.
func (k Key) LogValue() slog.Value { return slog.StringValue(k.ID) }

func isNotLowerOrDigit(r rune) bool {
	return (r < 'a' || r > 'z') && (r < '0' || r > '9')
}
