package unsubscribe

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
)

// minSecret is the minimum length of a secret in bytes, the length of the keys derived from it.
const minSecret = 32

// Keys are the secrets of an installation. The first one encrypts and all of them decrypt, so a key
// is replaced by inserting a new one at the front; earlier links stay valid as long as their key is
// in the list. The zero Keys encrypt and decrypt nothing.
type Keys struct {
	keys []key
}

// Fingerprints returns texts that identify the keys without revealing them, in their order: programs report them, so that
// operators can see whether two programs have the same keys.
func (k Keys) Fingerprints() []string {
	all := make([]string, len(k.keys))
	for i, one := range k.keys {
		all[i] = one.fingerprint
	}
	return all
}

// key has functions instead of secrets, so that printed Keys show none.
type key struct {
	aead        cipher.AEAD
	nonce       func(plain []byte) []byte
	fingerprint string
}

// Empty reports whether there is no key.
func (k Keys) Empty() bool { return len(k.keys) == 0 }

// UnmarshalText parses base64 of at least 32 bytes, or several of them separated by commas. Errors
// never quote a key.
func (k *Keys) UnmarshalText(text []byte) error {
	var keys []key
	for encoded := range strings.SplitSeq(string(text), ",") {
		secret, err := base64.StdEncoding.DecodeString(strings.TrimSpace(encoded))
		if err != nil || len(secret) < minSecret {
			return fmt.Errorf("must be base64 of at least %d bytes, or several with commas between", minSecret)
		}
		made, err := newKey(secret)
		if err != nil {
			return err
		}
		keys = append(keys, made)
	}
	k.keys = keys
	return nil
}

// newKey derives separate keys for encryption and for nonces.
func newKey(secret []byte) (key, error) {
	encryption, err := hkdf.Key(sha256.New, secret, nil, "unsubscribe link: encryption", 32)
	if err != nil {
		return key{}, fmt.Errorf("derive key: %w", err)
	}
	nonceKey, err := hkdf.Key(sha256.New, secret, nil, "unsubscribe link: nonce", 32)
	if err != nil {
		return key{}, fmt.Errorf("derive key: %w", err)
	}
	fingerprint, err := hkdf.Key(sha256.New, secret, nil, "unsubscribe link: fingerprint", 8)
	if err != nil {
		return key{}, fmt.Errorf("derive key: %w", err)
	}
	block, err := aes.NewCipher(encryption)
	if err != nil {
		return key{}, fmt.Errorf("derive key: %w", err)
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		return key{}, fmt.Errorf("derive key: %w", err)
	}
	if aead.NonceSize() != nonceBytes || aead.Overhead() != tagBytes {
		return key{}, errors.New("derive key: AES-GCM has other sizes than expected")
	}
	return key{aead: aead, nonce: nonceFunc(nonceKey), fingerprint: hex.EncodeToString(fingerprint)}, nil
}
