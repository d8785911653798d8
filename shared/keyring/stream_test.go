package keyring_test

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"runtime"
	"slices"
	"strconv"
	"testing"
	"testing/iotest"

	"email-gateway/shared/keyring"
)

// The layout of an encrypted file whose key id has four letters.
const (
	headerBytes    = 2 + 4 + 32 + 7
	plainBytes     = 64 << 10
	encryptedBytes = plainBytes + 16
)

var binding = []byte("company/mailing")

func TestStream_RoundTrip(t *testing.T) {
	t.Parallel()
	ring := mustParse(t, entry("2026", 2)+","+entry("2025", 1))
	for _, size := range []int{
		0, 1, 1000, plainBytes - 1, plainBytes, plainBytes + 1, 2*plainBytes - 1, 2 * plainBytes, 2*plainBytes + 1, 5*plainBytes + 77,
	} {
		plain := random(size)
		encrypted := encrypt(t, ring, plain)
		chunks := max(1, (size+plainBytes-1)/plainBytes)
		if want := headerBytes + size + 16*chunks; len(encrypted) != want {
			t.Errorf("%d bytes: encrypted to %d, want %d", size, len(encrypted), want)
		}
		if size > 100 && bytes.Contains(encrypted, plain[:50]) {
			t.Errorf("%d bytes: the encrypted file contains the plaintext", size)
		}
		for name, from := range map[string]io.Reader{
			"at once": bytes.NewReader(encrypted), "by halves": iotest.HalfReader(bytes.NewReader(encrypted)), "with the end": iotest.DataErrReader(bytes.NewReader(encrypted)),
		} {
			if opened, err := decrypt(ring, from, binding); err != nil || !bytes.Equal(opened, plain) {
				t.Errorf("%d bytes, read %s: %d were decrypted (%v)", size, name, len(opened), err)
			}
		}
		if size <= 2*plainBytes {
			r, err := ring.DecryptReader(bytes.NewReader(encrypted), binding)
			if err != nil {
				t.Fatal(err)
			}
			if err := iotest.TestReader(r, plain); err != nil {
				t.Errorf("%d bytes: %v", size, err)
			}
		}
		if bytes.Equal(encrypted[headerBytes:], encrypt(t, ring, plain)[headerBytes:]) {
			t.Errorf("%d bytes: encrypting twice gives the same ciphertext", size)
		}
	}
}

func TestStream_Rotation(t *testing.T) {
	t.Parallel()
	old, rotated := mustParse(t, entry("2025", 1)), mustParse(t, entry("2026", 2)+","+entry("2025", 1))
	plain := random(100_000)
	if opened, err := decrypt(rotated, bytes.NewReader(encrypt(t, old, plain)), binding); err != nil || !bytes.Equal(opened, plain) {
		t.Errorf("the rotated ring: %v", err)
	}
	if _, err := decrypt(old, bytes.NewReader(encrypt(t, rotated, plain)), binding); !errors.Is(err, keyring.ErrNoKey) {
		t.Errorf("the old ring has decrypted a file of the new key: %v", err)
	}
	impostor := mustParse(t, entry("2025", 9))
	if _, err := decrypt(impostor, bytes.NewReader(encrypt(t, old, plain)), binding); !errors.Is(err, keyring.ErrUndecryptable) {
		t.Errorf("another key of the same name: %v", err)
	}
	if _, err := (keyring.Ring{}).EncryptReader(bytes.NewReader(plain), binding); !errors.Is(err, keyring.ErrNoKey) {
		t.Errorf("an empty ring: %v", err)
	}
}

// Any change of the file is detected at its end at the latest, and no altered content is returned.
func TestStream_Damage(t *testing.T) {
	t.Parallel()
	ring := mustParse(t, entry("2026", 2))
	plain := random(3*plainBytes + 500)
	encrypted, other := encrypt(t, ring, plain), encrypt(t, ring, plain)
	header, chunk := encrypted[:headerBytes], func(n int) []byte {
		return encrypted[headerBytes+n*encryptedBytes : min(headerBytes+(n+1)*encryptedBytes, len(encrypted))]
	}
	damaged := map[string][]byte{
		"nothing":                     nil,
		"an empty last chunk":         append(bytes.Clone(encrypted), make([]byte, 16)...),
		"one byte appended":           append(bytes.Clone(encrypted), 0),
		"the file twice":              append(bytes.Clone(encrypted), encrypted...),
		"chunks swapped":              slices.Concat(header, chunk(1), chunk(0), chunk(2), chunk(3)),
		"a chunk taken out":           slices.Concat(header, chunk(0), chunk(2), chunk(3)),
		"the first chunk taken out":   slices.Concat(header, chunk(1), chunk(2), chunk(3)),
		"a chunk doubled":             slices.Concat(header, chunk(0), chunk(1), chunk(1), chunk(2), chunk(3)),
		"the last chunk first":        slices.Concat(header, chunk(3)),
		"another file's header":       slices.Concat(other[:headerBytes], encrypted[headerBytes:]),
		"another file's second chunk": slices.Concat(header, chunk(0), other[headerBytes+encryptedBytes:]),
	}
	for _, border := range []int{0, headerBytes, headerBytes + encryptedBytes, headerBytes + 2*encryptedBytes, headerBytes + 3*encryptedBytes, len(encrypted)} {
		for _, cut := range []int{border - 17, border - 16, border - 1, border, border + 1, border + 16, border + 17} {
			if cut >= 0 && cut < len(encrypted) {
				damaged["cut off at "+strconv.Itoa(cut)] = encrypted[:cut]
			}
		}
		for _, at := range []int{border - 16, border - 1, border, border + 1, border + 1000} {
			if at >= 0 && at < len(encrypted) {
				flipped := bytes.Clone(encrypted)
				flipped[at] ^= 0x10
				damaged["changed at "+strconv.Itoa(at)] = flipped
			}
		}
	}
	for at := range headerBytes {
		flipped := bytes.Clone(encrypted)
		flipped[at] ^= 1
		damaged["header changed at "+strconv.Itoa(at)] = flipped
	}
	for what, encrypted := range damaged {
		opened, err := decrypt(ring, bytes.NewReader(encrypted), binding)
		if !errors.Is(err, keyring.ErrUndecryptable) && !errors.Is(err, keyring.ErrNoKey) {
			t.Errorf("%s: %v", what, err)
		}
		if !bytes.HasPrefix(plain, opened) {
			t.Errorf("%s: decryption returned %d altered bytes", what, len(opened))
		}
	}
	for _, wrong := range []string{"", "company/mailinh", "company/mailing/", "company/mailin"} {
		if opened, err := decrypt(ring, bytes.NewReader(encrypted), []byte(wrong)); !errors.Is(err, keyring.ErrUndecryptable) || len(opened) > 0 {
			t.Errorf("decrypted with the binding %q: %d bytes, %v", wrong, len(opened), err)
		}
	}
	// Two ids of the same key: the file is bound to the id it was encrypted with.
	renamed := bytes.Clone(encrypted)
	renamed[5] ^= 1 // 2026 → 2027
	twins := mustParse(t, entry("2026", 2)+","+entry("2027", 2))
	if _, err := decrypt(twins, bytes.NewReader(renamed), binding); !errors.Is(err, keyring.ErrUndecryptable) {
		t.Errorf("the key id was replaced by another id of the same key: %v", err)
	}
	value, err := ring.Seal([16]byte{}, cpf)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := decrypt(ring, bytes.NewReader(append(value, make([]byte, 100)...)), binding); !errors.Is(err, keyring.ErrUndecryptable) {
		t.Errorf("an encrypted value opened as a file: %v", err)
	}
}

// A failing reader is not the end of the file: an interrupted upload returns io.ErrUnexpectedEOF.
func TestStream_ReaderFails(t *testing.T) {
	t.Parallel()
	ring := mustParse(t, entry("2026", 2))
	for _, size := range []int{0, 10, plainBytes, plainBytes + 1, 2*plainBytes + 10} {
		for _, cause := range []error{io.ErrUnexpectedEOF, io.ErrClosedPipe} {
			r, err := ring.EncryptReader(io.MultiReader(bytes.NewReader(random(size)), iotest.ErrReader(cause)), binding)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := io.ReadAll(r); !errors.Is(err, cause) {
				t.Errorf("encrypt, %v after %d bytes: %v", cause, size, err)
			}
			if _, err := r.Read(make([]byte, 1)); !errors.Is(err, cause) {
				t.Errorf("encrypt, second read: %v", err)
			}
			encrypted := encrypt(t, ring, random(3*plainBytes))[:size]
			if _, err := decrypt(ring, io.MultiReader(bytes.NewReader(encrypted), iotest.ErrReader(cause)), binding); !errors.Is(err, cause) {
				t.Errorf("decrypt, %v after %d bytes: %v", cause, size, err)
			}
		}
	}
}

// Not parallel: it counts the allocations of the whole process.
func TestStream_Memory(t *testing.T) {
	ring := mustParse(t, entry("2026", 2))
	used := func(size int64) uint64 {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		encrypted, err := ring.EncryptReader(io.LimitReader(zeros{}, size), binding)
		if err != nil {
			t.Fatal(err)
		}
		opened, err := ring.DecryptReader(encrypted, binding)
		if err != nil {
			t.Fatal(err)
		}
		if n, err := io.Copy(io.Discard, opened); n != size || err != nil {
			t.Fatalf("%d bytes, %v", n, err)
		}
		runtime.ReadMemStats(&after)
		return after.TotalAlloc - before.TotalAlloc
	}
	if small, large := used(1), used(64<<20); large > small+256<<10 {
		t.Errorf("64 MiB took %d KiB, one byte took %d", large>>10, small>>10)
	}
}

func BenchmarkEncryptReader(b *testing.B) {
	ring, err := keyring.Parse(entry("2026", 2))
	if err != nil {
		b.Fatal(err)
	}
	const size = 16 << 20
	b.SetBytes(size)
	b.ReportAllocs()
	for b.Loop() {
		r, err := ring.EncryptReader(io.LimitReader(zeros{}, size), binding)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := io.Copy(io.Discard, r); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkDecryptReader(b *testing.B) {
	ring, err := keyring.Parse(entry("2026", 2))
	if err != nil {
		b.Fatal(err)
	}
	r, err := ring.EncryptReader(bytes.NewReader(make([]byte, 16<<20)), binding)
	if err != nil {
		b.Fatal(err)
	}
	encrypted, err := io.ReadAll(r)
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(16 << 20)
	b.ReportAllocs()
	for b.Loop() {
		r, err := ring.DecryptReader(bytes.NewReader(encrypted), binding)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := io.Copy(io.Discard, r); err != nil {
			b.Fatal(err)
		}
	}
}

func encrypt(t *testing.T, ring keyring.Ring, plain []byte) []byte {
	t.Helper()
	r, err := ring.EncryptReader(bytes.NewReader(plain), binding)
	if err != nil {
		t.Fatal(err)
	}
	encrypted, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return encrypted
}

func decrypt(ring keyring.Ring, encrypted io.Reader, binding []byte) ([]byte, error) {
	r, err := ring.DecryptReader(encrypted, binding)
	if err != nil {
		return nil, err
	}
	return io.ReadAll(r)
}

func random(n int) []byte {
	b := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(b)
	return b
}

// zeros is an endless reader.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }
