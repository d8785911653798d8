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
// Each file has its own key, derived from the ring's with HKDF-SHA-256 from the salt, the header
// and the binding. A chunk's nonce is the prefix, the chunk number (4 bytes) and whether it is
// the last (1 byte): so changed, missing, repeated, reordered or appended chunks and truncated
// files are detected.
const (
	streamVersion = 2 // differs from version, so values of Seal never begin with it
	chunkBytes    = 64 << 10
	tagBytes      = 16
	saltBytes     = 32
	prefixBytes   = 7
	nonceBytes    = 12
)

// errTooLong: the limit is 256 TiB.
var errTooLong = errors.New("more chunks than a file can have")

// EncryptReader returns a reader of from, encrypted with the first key. The binding identifies
// the owner, such as company and id; decryption requires the same binding. It uses 128 KiB of
// memory. ErrNoKey: the ring is empty.
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

// DecryptReader decrypts a file of EncryptReader with the same binding; it reads the header
// immediately. The output is authentic, but complete only at io.EOF: do not commit to it before.
//
// ErrNoKey: the key is not in the ring; ErrUndecryptable, also from Read: damaged, truncated, or with
// another binding. Errors of from are returned unchanged.
func (r Ring) DecryptReader(from io.Reader, binding []byte) (io.Reader, error) {
	header := make([]byte, 2, 2+math.MaxUint8+saltBytes+prefixBytes)
	if err := readHeader(from, header); err != nil {
		return nil, err
	}
	if header[0] != streamVersion {
		return nil, ErrUndecryptable
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

// KeyOfStream returns the id of the key of an encrypted file, in the ring or not, and reads only
// the beginning of its header. ErrUndecryptable: it is not an encrypted file.
func KeyOfStream(from io.Reader) (string, error) {
	begin := make([]byte, 2, 2+math.MaxUint8)
	if err := readHeader(from, begin); err != nil {
		return "", err
	}
	if begin[0] != streamVersion {
		return "", ErrUndecryptable
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
		return ErrUndecryptable
	}
	return err
}

// read fills p unless from ends first. io.ReadFull cannot distinguish an end in the middle of p
// from an io.ErrUnexpectedEOF of from itself, which an interrupted upload returns and which must
// not be taken for the end of the file.
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

// chunks encrypts or decrypts chunks in sequence.
type chunks struct {
	aead  cipher.AEAD
	nonce [nonceBytes]byte
	count uint64
}

func newChunks(k key, header, binding []byte) (*chunks, error) {
	salt, prefix := header[len(header)-prefixBytes-saltBytes:len(header)-prefixBytes], header[len(header)-prefixBytes:]
	// The second byte determines the header's length, so the concatenation of header and binding
	// is unambiguous.
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
		return nil, ErrUndecryptable
	}
	return opened, nil
}

// next sets the nonce of the next chunk.
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

// stream converts from chunk by chunk.
type stream struct {
	from    io.Reader
	chunks  *chunks
	convert func(out, chunk []byte, last bool) ([]byte, error)

	in    []byte // a chunk and the first byte of the next, which shows that it is not the last
	ahead int    // bytes of in already read: 0 or 1
	out   []byte // converted output
	begin int    // start of the unread part of out
	err   error  // error after out
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
