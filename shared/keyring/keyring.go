// Package keyring encrypts data that must not be stored in plain text: CPFs and CNPJs, and the
// CSV files that contain them. The api encrypts data from requests and uploads, and decrypts a
// file again to ingest it. Only operator tools decrypt numbers.
//
// The first key of the ring encrypts and every key decrypts, so a key is replaced by adding a new
// one in front and keeping the old one behind it. An encrypted value contains the id of its key.
package keyring

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/google/uuid"
)

// Ring is a set of AES-256-GCM keys. The zero Ring has none and cannot encrypt.
type Ring struct {
	keys []key // the first one encrypts
}

type key struct {
	id   string
	aead cipher.AEAD
	// derive derives the key of one file. It is a function so that printing a Ring shows no
	// secret.
	derive func(salt []byte, info string) ([]byte, error)
}

const keyBytes = 32

// version is the first byte of an encrypted value: version, length of the key id, key id,
// nonce, ciphertext with tag.
const version = 1

var idPattern = regexp.MustCompile(`^[A-Za-z0-9._-]{1,32}$`)

var (
	ErrNoKey         = errors.New("no key with this id in the ring")
	ErrUndecryptable = errors.New("not an encrypted value, or not of this company")
)

// Parse parses "id:base64-of-32-bytes[,id2:…]". Errors contain no key.
func Parse(text string) (Ring, error) {
	var ring Ring
	for entry := range strings.SplitSeq(text, ",") {
		id, encoded, found := strings.Cut(strings.TrimSpace(entry), ":")
		if !found || !idPattern.MatchString(id) {
			return Ring{}, errors.New("every key must be written id:base64, the id in letters, digits, dot, dash and underscore")
		}
		if _, ok := ring.find(id); ok {
			return Ring{}, fmt.Errorf("key id %q is listed twice", id)
		}
		secret, err := base64.StdEncoding.DecodeString(encoded)
		if err != nil || len(secret) != keyBytes {
			return Ring{}, fmt.Errorf("key %q must be base64 of %d bytes", id, keyBytes)
		}
		aead, err := newAEAD(secret)
		if err != nil {
			return Ring{}, fmt.Errorf("key %q: %w", id, err)
		}
		derive := func(salt []byte, info string) ([]byte, error) {
			return hkdf.Key(sha256.New, secret, salt, info, keyBytes)
		}
		ring.keys = append(ring.keys, key{id: id, aead: aead, derive: derive})
	}
	return ring, nil
}

// UnmarshalText is Parse, for parsing the environment.
func (r *Ring) UnmarshalText(text []byte) (err error) {
	*r, err = Parse(string(text))
	return err
}

// Seal encrypts a bare CPF or CNPJ. The company is authenticated: a value copied to another
// company's row cannot be decrypted.
func (r Ring) Seal(company uuid.UUID, bare string) ([]byte, error) {
	if len(r.keys) == 0 {
		return nil, ErrNoKey
	}
	k := r.keys[0]
	encrypted := append([]byte{version, byte(len(k.id))}, k.id...)
	header := len(encrypted)
	encrypted = append(encrypted, make([]byte, k.aead.NonceSize())...)
	nonce := encrypted[header:]
	if _, err := rand.Read(nonce); err != nil {
		return nil, fmt.Errorf("make nonce: %w", err)
	}
	return k.aead.Seal(encrypted, nonce, []byte(bare), authenticated(company, encrypted[:header])), nil
}

// Open decrypts a value of Seal for the company. ErrNoKey: its key is not in the ring;
// ErrUndecryptable: damaged, or encrypted for another company.
func (r Ring) Open(company uuid.UUID, encrypted []byte) (string, error) {
	if len(encrypted) < 2 || encrypted[0] != version || len(encrypted) < 2+int(encrypted[1]) {
		return "", ErrUndecryptable
	}
	header := 2 + int(encrypted[1])
	k, ok := r.find(string(encrypted[2:header]))
	if !ok {
		return "", ErrNoKey
	}
	if len(encrypted) < header+k.aead.NonceSize() {
		return "", ErrUndecryptable
	}
	nonce, box := encrypted[header:header+k.aead.NonceSize()], encrypted[header+k.aead.NonceSize():]
	bare, err := k.aead.Open(nil, nonce, box, authenticated(company, encrypted[:header]))
	if err != nil {
		return "", ErrUndecryptable
	}
	return string(bare), nil
}

// Newest returns the id of the key that encrypts; "" if the ring is empty.
func (r Ring) Newest() string {
	if len(r.keys) == 0 {
		return ""
	}
	return r.keys[0].id
}

// IDs returns the ids of all keys, newest first.
func (r Ring) IDs() []string {
	ids := make([]string, len(r.keys))
	for i, k := range r.keys {
		ids[i] = k.id
	}
	return ids
}

// KeyOf returns the id of the key of an encrypted value, in the ring or not. ErrUndecryptable: it is
// not an encrypted value.
func KeyOf(encrypted []byte) (string, error) {
	if len(encrypted) < 2 || encrypted[0] != version || len(encrypted) < 2+int(encrypted[1]) {
		return "", ErrUndecryptable
	}
	return string(encrypted[2 : 2+int(encrypted[1])]), nil
}

func (r Ring) find(id string) (key, bool) {
	for _, k := range r.keys {
		if k.id == id {
			return k, true
		}
	}
	return key{}, false
}

func authenticated(company uuid.UUID, header []byte) []byte {
	return append(company[:], header...)
}

func newAEAD(secret []byte) (cipher.AEAD, error) {
	block, err := aes.NewCipher(secret)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCM(block)
}
