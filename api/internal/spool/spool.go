// Package spool stores request bodies on disk while they are received. Package reqbody uses it for
// bodies that are too large, or arrive too slowly, to be kept in memory.
//
// A file has no name: it is unlinked as soon as it is created, so that it disappears when it is closed
// or the process is killed. It is encrypted with a key that exists only in the process's memory,
// since bodies may contain CPFs.
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

// pattern is the name of a file before it is unlinked.
const pattern = "email-gateway-body-*"

// Dir is a directory for files.
type Dir struct{ path string }

// Open creates the directory if necessary, removes files of a process that was killed between
// creating and unlinking them, and checks that files can be written. "" is the system's temporary
// directory.
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
		// Another process may have just created it, and does not need the name.
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

// File is a body being received.
type File struct {
	file  *os.File
	block cipher.Block
	in    cipher.Stream
	size  int64
	buf   []byte
}

// Create creates an empty file.
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

// stream starts at the first byte of the file. No two files have the same key, so the counter can
// start at 0.
func stream(block cipher.Block) cipher.Stream {
	return cipher.NewCTR(block, make([]byte, aes.BlockSize))
}

// pieceSize is how much is encrypted at a time, which limits the buffer of a file (bytes).
const pieceSize = 32 << 10

// Write appends to the file.
func (f *File) Write(p []byte) (written int, err error) {
	for piece := range slices.Chunk(p, pieceSize) {
		if cap(f.buf) < len(piece) {
			f.buf = make([]byte, len(piece))
		}
		encrypted := f.buf[:len(piece)]
		f.in.XORKeyStream(encrypted, piece)
		n, err := f.file.Write(encrypted)
		f.size += int64(n)
		written += n
		if err != nil {
			return written, fmt.Errorf("write spool file: %w", err)
		}
	}
	return written, nil
}

// Reader reads the file from its beginning. Each reader is independent of the others.
func (f *File) Reader() io.Reader {
	return cipher.StreamReader{S: stream(f.block), R: io.NewSectionReader(f.file, 0, f.size)}
}

// Size is how many bytes were written.
func (f *File) Size() int64 { return f.size }

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
