// Package unsubscribe makes the links with which a recipient unsubscribes from a tenant's mailings,
// and the headers for one-click unsubscribe (RFC 8058).
//
// A link contains all data needed to process it, encrypted, so it works as long as its key is kept,
// even after the rows of the mailing were purged. The same recipient of the same mailing always
// gets the same link: a retry sends the same bytes.
package unsubscribe

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"regexp"
	"strings"

	"github.com/google/uuid"

	"email-gateway/shared/email"
)

// A token is base64url, without padding, of
//
//	version (1) | nonce (12) | company (16) | mailing (16) | address | tag (16)
//
// where everything after the nonce is AES-256-GCM and the version is authenticated. The nonce is
// the beginning of an HMAC of the plaintext: equal links give equal tokens; different links share a
// nonce about once in 2^48 links, which affects only these two.
const (
	version      = 1
	nonceBytes   = 12
	tagBytes     = 16
	idBytes      = 16
	addressBytes = 254 // maximum length of an address
	minEncrypted = 1 + nonceBytes + 2*idBytes + 1 + tagBytes
	maxEncrypted = minEncrypted - 1 + addressBytes
)

// MaxToken is the maximum length of a token in characters.
const MaxToken = (maxEncrypted*8 + 5) / 6

// ErrInvalid is returned by Open for a token that Seal did not make with one of the keys. The
// reason is omitted, because it would only help a forger.
var ErrInvalid = errors.New("not a valid unsubscribe link")

// Link says who unsubscribes. The mailing is the one whose email contained the link; the
// unsubscription applies to all mailings of the company.
type Link struct {
	Company uuid.UUID
	Mailing uuid.UUID
	Address string
}

// Seal encrypts a link as a token of letters, digits, - and _, of at most MaxToken characters. The
// address must be accepted by email.CheckAddress; it is normalized. Without a key the token is
// empty.
func (k Keys) Seal(link Link) string {
	if len(k.keys) == 0 {
		return ""
	}
	plain := make([]byte, 0, maxEncrypted)
	plain = append(plain, link.Company[:]...)
	plain = append(plain, link.Mailing[:]...)
	plain = append(plain, email.NormalAddress(link.Address)...)

	first := k.keys[0]
	encrypted := append(make([]byte, 0, maxEncrypted), version)
	encrypted = append(encrypted, first.nonce(plain)...)
	encrypted = first.aead.Seal(encrypted, encrypted[1:], plain, encrypted[:1])
	return base64.RawURLEncoding.EncodeToString(encrypted)
}

// Open decrypts a token. It returns ErrInvalid for anything but the exact result of Seal with one
// of the keys.
func (k Keys) Open(token string) (Link, error) {
	if len(token) > MaxToken {
		return Link{}, ErrInvalid
	}
	encrypted, err := base64.RawURLEncoding.Strict().DecodeString(token)
	if err != nil || len(encrypted) < minEncrypted || encrypted[0] != version || strings.ContainsAny(token, "\r\n") {
		return Link{}, ErrInvalid // the decoder skips line breaks
	}
	header, nonce, box := encrypted[:1], encrypted[1:1+nonceBytes], encrypted[1+nonceBytes:]
	for _, key := range k.keys {
		plain, err := key.aead.Open(nil, nonce, box, header)
		if err != nil {
			continue
		}
		return Link{
			Company: uuid.UUID(plain[:idBytes]),
			Mailing: uuid.UUID(plain[idBytes : 2*idBytes]),
			Address: string(plain[2*idBytes:]),
		}, nil
	}
	return Link{}, ErrInvalid
}

// tokenForm matches every token: at least minEncrypted bytes, the first of which is the version.
var tokenForm = regexp.MustCompile(`A[Q-Za-f][A-Za-z0-9_-]{81,}`)

// WithoutTokens removes from a path everything that has the form of a token, also in paths of other programs: merge
// fields put tokens into tenants' links too. What is kept about a click must not contain a working token.
func WithoutTokens(path string) string { return tokenForm.ReplaceAllString(path, "") }

// nonceFunc returns a function that derives a nonce from a plaintext.
func nonceFunc(secret []byte) func(plain []byte) []byte {
	return func(plain []byte) []byte {
		mac := hmac.New(sha256.New, secret)
		mac.Write(plain)
		return mac.Sum(nil)[:nonceBytes]
	}
}

// URL is the address at which a token is used. publicURL is the api's address for recipients, with
// or without a trailing slash.
func URL(publicURL, token string) string {
	return strings.TrimRight(publicURL, "/") + "/u/" + token
}

// reference is the prefix of the header's value in a job, followed by the mailing's id.
const reference = "mailing:"

// Reference returns the headers in the job of an email whose link is made when it is sent: a job must not contain a token,
// because queues and dead letters have it in clear text.
func Reference(mailing uuid.UUID) map[string]string {
	return map[string]string{header: reference + mailing.String()}
}

// Referenced returns the mailing of a job with the headers of Reference.
func Referenced(headers map[string]string) (mailing uuid.UUID, ok bool) {
	id, ok := strings.CutPrefix(headers[header], reference)
	if !ok {
		return uuid.Nil, false
	}
	mailing, err := uuid.Parse(id)
	return mailing, err == nil
}

const header = "List-Unsubscribe"

// Headers are the two headers of RFC 8058. Mail clients use them only if url begins with https://.
func Headers(url string) map[string]string {
	return map[string]string{
		header:                  "<" + url + ">",
		"List-Unsubscribe-Post": "List-Unsubscribe=One-Click",
	}
}
