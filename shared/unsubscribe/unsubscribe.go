// Package unsubscribe makes the links with which a recipient leaves a tenant's
// mailings, and the headers that let a mail client do it with one click
// (RFC 8058).
//
// A link carries all that is needed to honour it, encrypted, so it works for as
// long as its key is kept, however long ago the rows of the mailing were purged.
// The same recipient of the same mailing always gets the same link: a retry sends
// the same bytes.
package unsubscribe

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"strings"

	"github.com/google/uuid"

	"email-gateway/shared/email"
)

// A token is base64url, without padding, of
//
//	version (1) | nonce (12) | company (16) | mailing (16) | address | tag (16)
//
// of which all behind the nonce is AES-256-GCM and the version is authenticated.
// The nonce is the beginning of an HMAC over the plaintext: equal links give equal
// tokens, others meet in a nonce once in 2^48 links or so, and then only the two
// of them.
const (
	version      = 1
	nonceBytes   = 12
	tagBytes     = 16
	idBytes      = 16
	addressBytes = 254 // the longest address that can be mailed
	minSealed    = 1 + nonceBytes + 2*idBytes + 1 + tagBytes
	maxSealed    = minSealed - 1 + addressBytes
)

// MaxToken is the length of the longest token in characters.
const MaxToken = (maxSealed*8 + 5) / 6

// ErrInvalid is all that Open says about a token that Seal did not make with one of
// the keys: why it does not open helps nobody but a forger.
var ErrInvalid = errors.New("not a valid unsubscribe link")

// Link says who leaves which mailings. The mailing is the one whose email carried
// the link; the wish is meant for all of the company's.
type Link struct {
	Company uuid.UUID
	Mailing uuid.UUID
	Address string
}

// Seal turns a link into a token of letters, digits, - and _, at most MaxToken of
// them. The address, which must be one that email.CheckAddress accepts, is sealed in
// its normal form. Without a key the token is empty.
func (k Keys) Seal(link Link) string {
	if len(k.keys) == 0 {
		return ""
	}
	plain := make([]byte, 0, maxSealed)
	plain = append(plain, link.Company[:]...)
	plain = append(plain, link.Mailing[:]...)
	plain = append(plain, email.NormalAddress(link.Address)...)

	first := k.keys[0]
	sealed := append(make([]byte, 0, maxSealed), version)
	sealed = append(sealed, first.nonce(plain)...)
	sealed = first.aead.Seal(sealed, sealed[1:], plain, sealed[:1])
	return base64.RawURLEncoding.EncodeToString(sealed)
}

// Open reads a token. It returns ErrInvalid for whatever Seal did not make,
// character for character, with one of the keys.
func (k Keys) Open(token string) (Link, error) {
	if len(token) > MaxToken {
		return Link{}, ErrInvalid
	}
	sealed, err := base64.RawURLEncoding.Strict().DecodeString(token)
	if err != nil || len(sealed) < minSealed || sealed[0] != version || strings.ContainsAny(token, "\r\n") {
		return Link{}, ErrInvalid // the decoder skips line breaks
	}
	header, nonce, box := sealed[:1], sealed[1:1+nonceBytes], sealed[1+nonceBytes:]
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

// synthesize makes nonces out of plaintexts.
func synthesize(secret []byte) func(plain []byte) []byte {
	return func(plain []byte) []byte {
		mac := hmac.New(sha256.New, secret)
		mac.Write(plain)
		return mac.Sum(nil)[:nonceBytes]
	}
}

// URL is where a token is redeemed. publicURL is the api's address as recipients
// reach it, with or without a slash at the end.
func URL(publicURL, token string) string {
	return strings.TrimRight(publicURL, "/") + "/u/" + token
}

// Headers are the two that RFC 8058 asks for. Mail clients honour them only when
// url begins with https://.
func Headers(url string) map[string]string {
	return map[string]string{
		"List-Unsubscribe":      "<" + url + ">",
		"List-Unsubscribe-Post": "List-Unsubscribe=One-Click",
	}
}
