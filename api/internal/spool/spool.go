// Package spool keeps bodies of requests on disk while they arrive. Package httpapi uses it
// for what is too large, or comes too slowly, to be kept in memory.
//
// A file has no name: it is unlinked as soon as it is made, so that it is gone when it is
// closed, and when the process is killed. It is encrypted with a key that nothing but the
// process's memory holds, since bodies may name CPFs in clear.
package spool

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
)

// pattern is how files are named for the moment that they have a name.
const pattern = "email-gateway-body-*"

// Dir is where files are made.
type Dir struct{ path string }

// Open makes the directory if it is not there, removes what a process left that was killed
// between making a file and unlinking it, and tries whether files can be written. "" is the
// system's directory for temporary files.
func Open(path string) (*Dir, error) {
	if path == "" {
		path = os.TempDir()
	}
	d := &Dir{path: path}
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, fmt.Errorf("make spool directory: %w", err)
	}
	left, err := filepath.Glob(filepath.Join(path, pattern))
	if err != nil {
		return nil, fmt.Errorf("list spool directory: %w", err)
	}
	for _, name := range left {
		// Another process may have made it just now, and does not need the name.
		if err := os.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrPermission) {
			return nil, fmt.Errorf("clean spool directory: %w", err)
		}
	}
	f, err := d.Create()
	if err != nil {
		return nil, err
	}
	_, err = f.Write([]byte("x"))
	return d, errors.Join(err, f.Close())
}

// File is what is known of a body so far.
type File struct {
	file  *os.File
	block cipher.Block
	in    cipher.Stream
	size  int64
	buf   []byte
}

// Create makes an empty file.
func (d *Dir) Create() (*File, error) {
	var key [32]byte
	if _, err := rand.Read(key[:]); err != nil {
		return nil, fmt.Errorf("make spool key: %w", err)
	}
	block, err := aes.NewCipher(key[:])
	if err != nil {
		return nil, fmt.Errorf("make spool key: %w", err)
	}
	file, err := os.CreateTemp(d.path, pattern)
	if err != nil {
		return nil, fmt.Errorf("make spool file: %w", err)
	}
	if err := os.Remove(file.Name()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, errors.Join(fmt.Errorf("unlink spool file: %w", err), file.Close())
	}
	return &File{file: file, block: block, in: stream(block)}, nil
}

// stream begins at the file's first byte. No two files have the same key, so the first
// counter can be 0.
func stream(block cipher.Block) cipher.Stream {
	return cipher.NewCTR(block, make([]byte, aes.BlockSize))
}

// pieceSize is how much is encrypted at a time: the file keeps a buffer of that size, however
// large what is written at once.
const pieceSize = 32 << 10

// Write appends to the file.
func (f *File) Write(p []byte) (written int, err error) {
	for piece := range slices.Chunk(p, pieceSize) {
		if cap(f.buf) < len(piece) {
			f.buf = make([]byte, len(piece))
		}
		sealed := f.buf[:len(piece)]
		f.in.XORKeyStream(sealed, piece)
		n, err := f.file.Write(sealed)
		f.size += int64(n)
		written += n
		if err != nil {
			return written, fmt.Errorf("write spool file: %w", err)
		}
	}
	return written, nil
}

// Bytes reads the whole file.
func (f *File) Bytes() ([]byte, error) {
	all := make([]byte, f.size)
	if _, err := io.ReadFull(io.NewSectionReader(f.file, 0, f.size), all); err != nil {
		return nil, fmt.Errorf("read spool file: %w", err)
	}
	stream(f.block).XORKeyStream(all, all)
	return all, nil
}

// Close removes the file.
func (f *File) Close() error {
	if err := f.file.Close(); err != nil {
		return fmt.Errorf("close spool file: %w", err)
	}
	return nil
}
