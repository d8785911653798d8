package keyring_test

import (
	"bytes"
	"encoding/base64"
	"errors"
	"strings"
	"testing"

	"github.com/google/uuid"

	"email-gateway/shared/keyring"
)

const cpf = "52998224725"

func entry(id string, fill byte) string {
	return id + ":" + base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{fill}, 32))
}

func mustParse(t *testing.T, text string) keyring.Ring {
	t.Helper()
	ring, err := keyring.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return ring
}

func TestSealAndOpen(t *testing.T) {
	t.Parallel()
	company := uuid.New()
	old := mustParse(t, entry("2025", 1))
	rotated := mustParse(t, entry("2026", 2)+", "+entry("2025", 1))

	encrypted, err := old.Seal(company, cpf)
	if err != nil {
		t.Fatal(err)
	}
	again, err := old.Seal(company, cpf)
	if err != nil || bytes.Equal(encrypted, again) {
		t.Errorf("encrypting a number twice gives the same ciphertext (%v)", err)
	}
	if bytes.Contains(encrypted, []byte(cpf)) || !bytes.Contains(encrypted, []byte("2025")) {
		t.Errorf("encrypted: %q", encrypted)
	}
	for name, ring := range map[string]keyring.Ring{"same ring": old, "rotated ring": rotated} {
		if got, err := ring.Open(company, encrypted); got != cpf || err != nil {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
	encrypted, err = rotated.Seal(company, cpf)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := old.Open(company, encrypted); !errors.Is(err, keyring.ErrNoKey) {
		t.Errorf("the old ring has decrypted a value of the new key: %v", err)
	}
}

func TestOpen_Refuses(t *testing.T) {
	t.Parallel()
	company, ring := uuid.New(), mustParse(t, entry("k", 1))
	encrypted, err := ring.Seal(company, cpf)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ring.Open(uuid.New(), encrypted); !errors.Is(err, keyring.ErrUndecryptable) {
		t.Errorf("a value was decrypted for another company: %v", err)
	}
	for n := range encrypted {
		if _, err := ring.Open(company, encrypted[:n]); err == nil {
			t.Errorf("opened the first %d bytes", n)
		}
		damaged := bytes.Clone(encrypted)
		damaged[n] ^= 1
		if _, err := ring.Open(company, damaged); err == nil {
			t.Errorf("opened with byte %d changed", n)
		}
	}
	if _, err := (keyring.Ring{}).Seal(company, cpf); err == nil {
		t.Error("an empty ring encrypts")
	}
}

func TestParse_Refuses(t *testing.T) {
	t.Parallel()
	secret := base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{7}, 31))
	for _, text := range []string{
		"", "k", ":" + secret, "k:" + secret, "k:!", entry("a b", 1), entry("k", 1) + ",", entry("k", 1) + "," + entry("k", 2),
		entry(strings.Repeat("k", 33), 1),
	} {
		_, err := keyring.Parse(text)
		if err == nil {
			t.Errorf("Parse(%q) succeeds", text)
		} else if strings.Contains(err.Error(), secret) {
			t.Errorf("the error quotes the key: %v", err)
		}
	}
}
