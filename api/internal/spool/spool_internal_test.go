package spool

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

// Written data is read back, and neither a name nor the text is found on disk.
func TestFile(t *testing.T) {
	t.Parallel()
	folder := filepath.Join(t.TempDir(), "made")
	d, err := Open(folder)
	if err != nil {
		t.Fatal(err)
	}
	f, err := d.Create()
	if err != nil {
		t.Fatal(err)
	}
	text := bytes.Repeat([]byte("cpf 529.982.247-25 "), 50_000)
	for rest := text; len(rest) > 0; {
		n := min(len(rest), 4099)
		if _, err := f.Write(rest[:n]); err != nil {
			t.Fatal(err)
		}
		rest = rest[n:]
	}
	if got, err := f.Bytes(); err != nil || !bytes.Equal(got, text) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	if _, err := f.Write(text); err != nil || cap(f.buf) > pieceSize {
		t.Errorf("a file keeps %d bytes of memory: %v", cap(f.buf), err)
	}
	stored := make([]byte, len(text))
	if _, err := f.file.ReadAt(stored, 0); err != nil || bytes.Contains(stored, []byte("529.982")) {
		t.Errorf("a file on disk contains the text: %v", err)
	}
	if left, err := os.ReadDir(folder); err != nil || len(left) != 0 {
		t.Errorf("while it is open: %v, %v", left, err)
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
}

// Files left by a killed process are removed, and no others.
func TestOpen_Cleans(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	for _, name := range []string{"email-gateway-body-123", "other"} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := Open(folder); err != nil {
		t.Fatal(err)
	}
	left, err := os.ReadDir(folder)
	if err != nil || len(left) != 1 || left[0].Name() != "other" {
		t.Errorf("%v, %v", left, err)
	}
	if _, err := Open(filepath.Join(folder, "other", "below")); err == nil {
		t.Error("Open accepts a folder without write permission")
	}
}
