// Package apikey defines the format of API keys. The api parses them from requests; gatewayctl
// creates them.
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

// Scopes are the permissions of a key.
const (
	EmailsSend        = "emails:send"
	EmailsRead        = "emails:read"
	MailingsWrite     = "mailings:write"
	MailingsRead      = "mailings:read"
	RecipientsWrite   = "recipients:write"
	SuppressionsWrite = "suppressions:write"
	DeadLettersWrite  = "deadletters:write"
	TemplatesWrite    = "templates:write"
	TemplatesRead     = "templates:read"
	WebhooksRead      = "webhooks:read"
	WebhooksWrite     = "webhooks:write"
)

// Scopes lists all scopes.
func Scopes() []string {
	return []string{
		EmailsSend, EmailsRead, MailingsWrite, MailingsRead,
		RecipientsWrite, SuppressionsWrite, DeadLettersWrite, TemplatesWrite, TemplatesRead, WebhooksRead, WebhooksWrite,
	}
}

// ErrSyntax is returned by Parse for text that is not a key.
var ErrSyntax = errors.New("is not an API key")

// Key is a key in plain text. It is shown to its owner once; only ID and SecretSHA256 are
// stored.
type Key struct {
	Environment string // visible in the key: live, test or dev
	ID          string // public: shown in logs and by gatewayctl
	Secret      string
}

const idLength = 16 // 80 bits of base32: collisions are practically impossible

var environmentPattern = regexp.MustCompile(`^[a-z0-9]{1,16}$`)

// New returns a key of 260 random bits. Such a secret cannot be guessed, so storing its plain
// SHA-256 is enough, and comparing it per request is cheap.
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

// maxLength limits the input of Parse; New creates at most 88 characters.
const maxLength = 256

// Prefix begins every key.
const Prefix = "gw_"

// Parse parses "gw_<environment>_<id>_<secret>". It does not check whether the key exists.
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

// String returns the key as shown to its owner and sent with requests.
func (k Key) String() string {
	return Prefix + k.Environment + "_" + k.ID + "_" + k.Secret
}

// SecretSHA256 is the stored form of the secret.
func (k Key) SecretSHA256() []byte {
	sum := sha256.Sum256([]byte(k.Secret))
	return sum[:]
}

// LogValue keeps the secret out of logs.
func (k Key) LogValue() slog.Value { return slog.StringValue(k.ID) }

func isNotLowerOrDigit(r rune) bool {
	return (r < 'a' || r > 'z') && (r < '0' || r > '9')
}
