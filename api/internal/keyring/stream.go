package keyring

import (
	"crypto/cipher"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
)

// An encrypted file is a header and chunks, in the STREAM construction of Hoang,
// Reyhanitabar, Rogaway and Vizár:
//
//	header: streamVersion, length of the key's id, the id, salt (32 bytes), nonce prefix (7 bytes)
//	chunk:  AES-256-GCM of chunkBytes, the last one of what is left, each with its tag (16 bytes)
//
// Each file has a key of its own, made from the ring's by HKDF-SHA-256 with the salt,
// the header and the binding. A chunk's nonce is the prefix, the chunk's number (4
// bytes) and whether it is the last (1 byte): so a chunk that is changed, missing,
// doubled, moved or appended is found, and so is a file without its end.
const (
	streamVersion = 2 // no value that Seal makes begins with it
	chunkBytes    = 64 << 10
	tagBytes      = 16
	saltBytes     = 32
	prefixBytes   = 7
	nonceBytes    = 12
)

// errTooLong: 256 TiB.
var errTooLong = errors.New("more chunks than a file can have")

// EncryptReader returns a reader of r encrypted with the first key. The binding is
// what the file belongs to, its company and its id say: only who names the same can
// decrypt it. It holds 128 KiB of memory. ErrNoKey: the ring is empty.
func (r Ring) EncryptReader(from io.Reader, binding []byte) (io.Reader, error) {
	if len(r.keys) == 0 {
		return nil, ErrNoKey
	}
	k := r.keys[0]
	header := append([]byte{streamVersion, byte(len(k.id))}, k.id...)
	header = append(header, make([]byte, saltBytes+prefixBytes)...)
	if _, err := rand.Read(header[2+len(k.id):]); err != nil {
		return nil, fmt.Errorf("make salt: %w", err)
	}
	chunks, err := newChunks(k, header, binding)
	if err != nil {
		return nil, fmt.Errorf("encrypt: %w", err)
	}
	return &stream{
		from: from, chunks: chunks, in: make([]byte, chunkBytes+1),
		out: append(make([]byte, 0, chunkBytes+tagBytes), header...), convert: chunks.seal,
	}, nil
}

// DecryptReader returns a reader of what EncryptReader made of a file with the same
// binding; it reads the header at once. What it yields is authentic, but only io.EOF
// tells that it was all: until then keep nothing for good.
//
// ErrNoKey: its key was taken out of the ring; ErrSealed, here or from Read: damaged,
// cut off, or bound to something else. An error of r comes as it is.
func (r Ring) DecryptReader(from io.Reader, binding []byte) (io.Reader, error) {
	header := make([]byte, 2, 2+math.MaxUint8+saltBytes+prefixBytes)
	if err := readHeader(from, header); err != nil {
		return nil, err
	}
	if header[0] != streamVersion {
		return nil, ErrSealed
	}
	begin := 2 + int(header[1])
	header = header[:begin+saltBytes+prefixBytes]
	if err := readHeader(from, header[2:]); err != nil {
		return nil, err
	}
	k, ok := r.find(string(header[2:begin]))
	if !ok {
		return nil, ErrNoKey
	}
	chunks, err := newChunks(k, header, binding)
	if err != nil {
		return nil, fmt.Errorf("decrypt: %w", err)
	}
	return &stream{
		from: from, chunks: chunks, in: make([]byte, chunkBytes+tagBytes+1),
		out: make([]byte, 0, chunkBytes), convert: chunks.open,
	}, nil
}

// KeyOfStream reads no more of an encrypted file than tells the id of its key, in the ring
// or not. ErrSealed: it is none.
func KeyOfStream(from io.Reader) (string, error) {
	begin := make([]byte, 2, 2+math.MaxUint8)
	if err := readHeader(from, begin); err != nil {
		return "", err
	}
	if begin[0] != streamVersion {
		return "", ErrSealed
	}
	begin = begin[:2+int(begin[1])]
	if err := readHeader(from, begin[2:]); err != nil {
		return "", err
	}
	return string(begin[2:]), nil
}

func readHeader(from io.Reader, header []byte) error {
	_, end, err := read(from, header)
	if end {
		return ErrSealed
	}
	return err
}

// read fills p, unless from ends before. io.ReadFull will not do: it does not tell an
// end in the middle of p from an io.ErrUnexpectedEOF of from itself, which is how an
// upload that breaks off ends, and that must not be taken for a whole file.
func read(from io.Reader, p []byte) (n int, end bool, err error) {
	for n < len(p) && err == nil {
		var more int
		more, err = from.Read(p[n:])
		n += more
	}
	if n == len(p) {
		return n, false, nil
	}
	if err == io.EOF {
		return n, true, nil
	}
	return n, false, err
}

// chunks seals or opens one chunk after the other.
type chunks struct {
	aead  cipher.AEAD
	nonce [nonceBytes]byte
	count uint64
}

func newChunks(k key, header, binding []byte) (*chunks, error) {
	salt, prefix := header[len(header)-prefixBytes-saltBytes:len(header)-prefixBytes], header[len(header)-prefixBytes:]
	// The header's length is known from its second byte: no two pairs of header and
	// binding make the same text.
	secret, err := k.derive(salt, "email-gateway file\x00"+string(header)+string(binding))
	if err != nil {
		return nil, err
	}
	c := &chunks{}
	copy(c.nonce[:], prefix)
	c.aead, err = newAEAD(secret)
	return c, err
}

func (c *chunks) seal(out, chunk []byte, last bool) ([]byte, error) {
	if err := c.next(last); err != nil {
		return nil, err
	}
	return c.aead.Seal(out, c.nonce[:], chunk, nil), nil
}

func (c *chunks) open(out, chunk []byte, last bool) ([]byte, error) {
	if err := c.next(last); err != nil {
		return nil, err
	}
	opened, err := c.aead.Open(out, c.nonce[:], chunk, nil)
	if err != nil {
		return nil, ErrSealed
	}
	return opened, nil
}

// next makes the nonce of the next chunk.
func (c *chunks) next(last bool) error {
	if c.count > math.MaxUint32 {
		return errTooLong
	}
	binary.BigEndian.PutUint32(c.nonce[prefixBytes:], uint32(c.count))
	if last {
		c.nonce[nonceBytes-1] = 1
	}
	c.count++
	return nil
}

// stream reads from, chunk by chunk, and yields them converted.
type stream struct {
	from    io.Reader
	chunks  *chunks
	convert func(out, chunk []byte, last bool) ([]byte, error)

	in    []byte // a chunk and the first byte of the next, by which it is known not to be the last
	ahead int    // how much of in has been read already: 0 or 1
	out   []byte // converted and not yet yielded
	begin int    // of what is left of out
	err   error  // what follows out
}

func (s *stream) Read(p []byte) (int, error) {
	for s.begin == len(s.out) {
		if s.err != nil {
			return 0, s.err
		}
		if len(p) == 0 {
			return 0, nil
		}
		s.fill()
	}
	n := copy(p, s.out[s.begin:])
	s.begin += n
	return n, nil
}

// fill converts one chunk.
func (s *stream) fill() {
	s.begin, s.out = 0, s.out[:0]
	n, last, err := read(s.from, s.in[s.ahead:])
	if err != nil {
		s.err = err
		return
	}
	n += s.ahead
	chunk := s.in[:n]
	if last {
		s.err = io.EOF
	} else {
		chunk = s.in[:n-1]
	}
	converted, err := s.convert(s.out, chunk, last)
	if err != nil {
		s.err = err
		return
	}
	s.out = converted
	if !last {
		s.in[0], s.ahead = s.in[n-1], 1
	}
}
