package attachment

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"unicode/utf8"
)

// pieceBytes is how much is read, decoded and written at a time.
const pieceBytes = 32 << 10

// errNotBase64 describes a text that is not base64.
type errNotBase64 struct{ reason string }

func (e errNotBase64) Error() string { return e.reason }

// sextets maps the characters of the standard alphabet to their values.
var sextets = func() (table [256]byte) {
	for i := range table {
		table[i] = 0xFF
	}
	for i, c := range "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/" {
		table[c] = byte(i)
	}
	return table
}()

// decoder decodes base64 of the standard alphabet, character by character. It skips line breaks and spaces, as MIME has
// them; padding may be missing.
type decoder struct {
	to      io.Writer
	out     []byte
	bits    uint32
	have    int // sextets in bits: 0 to 3
	padding int
	read    int64 // characters
}

func newDecoder(to io.Writer) *decoder { return &decoder{to: to, out: make([]byte, 0, pieceBytes)} }

func (d *decoder) add(c byte) error {
	d.read++
	switch value := sextets[c]; {
	case value != 0xFF && d.padding == 0:
		d.bits = d.bits<<6 | uint32(value)
		if d.have++; d.have < 4 {
			return nil
		}
		d.out = append(d.out, byte(d.bits>>16), byte(d.bits>>8), byte(d.bits))
		d.bits, d.have = 0, 0
		if len(d.out)+3 > cap(d.out) {
			return d.flush()
		}
	case c == '\n' || c == '\r' || c == ' ' || c == '\t':
	case c == '=' && d.have+d.padding >= 2 && d.have+d.padding < 4:
		d.padding++
	case c == '-' || c == '_':
		return errNotBase64{fmt.Sprintf("must be base64 in the standard alphabet, with + and / instead of - and _ (character %d)", d.read)}
	default:
		return errNotBase64{fmt.Sprintf("must be base64: character %d is not a base64 character", d.read)}
	}
	return nil
}

func (d *decoder) flush() error {
	_, err := d.to.Write(d.out)
	d.out = d.out[:0]
	return err
}

// end decodes the last group.
func (d *decoder) end() error {
	switch {
	case d.have == 1, d.padding > 0 && d.have+d.padding != 4:
		return errNotBase64{"must be base64: its last group is incomplete"}
	case d.have == 2:
		d.out = append(d.out, byte(d.bits>>4))
	case d.have == 3:
		d.out = append(d.out, byte(d.bits>>10), byte(d.bits>>2))
	}
	return d.flush()
}

// errBroken: the JSON is not valid at this point.
var errBroken = errors.New("invalid JSON")

// brokenString is an errBroken within a string.
type brokenString struct{ read []byte } // the invalid character or escape, as far as it was read

func (b *brokenString) Error() string { return fmt.Sprintf("invalid JSON string: %q", b.read) }

func (b *brokenString) Unwrap() error { return errBroken }

// decodeString reads the rest of a JSON string, after its first quote, and decodes it. A text that is not base64 is read to its
// end. err is an error of the reader or of the disk, or a *brokenString.
func decodeString(in *bufio.Reader, d *decoder) (invalid error, err error) {
	add := func(c byte) {
		if invalid == nil && err == nil {
			failed := d.add(c)
			if _, ok := errors.AsType[errNotBase64](failed); ok || errors.Is(failed, ErrTooLarge) {
				invalid = failed
			} else {
				err = failed
			}
		}
	}
	for err == nil {
		c, failed := in.ReadByte()
		switch {
		case failed != nil:
			return invalid, failed
		case c == '"':
			if invalid == nil {
				if failed := d.end(); failed != nil {
					if _, ok := errors.AsType[errNotBase64](failed); ok || errors.Is(failed, ErrTooLarge) {
						return failed, nil
					}
					return nil, failed
				}
			}
			return invalid, nil
		case c < ' ':
			return invalid, &brokenString{[]byte{c}}
		case c >= utf8.RuneSelf:
			failed = readRune(in, c)
		case c == '\\':
			c, failed = unescape(in)
		}
		if failed != nil {
			return invalid, failed
		}
		add(c)
	}
	return invalid, err
}

// readRune reads the rest of a character beyond ASCII, which is not base64.
func readRune(in *bufio.Reader, first byte) error {
	if err := in.UnreadByte(); err != nil {
		return err
	}
	r, size, err := in.ReadRune()
	if err == nil && r == utf8.RuneError && size == 1 {
		return &brokenString{[]byte{first}}
	}
	return err
}

// unescape reads an escape, after its backslash.
func unescape(in *bufio.Reader) (byte, error) {
	c, err := in.ReadByte()
	if err != nil {
		return 0, err
	}
	switch c {
	case '"', '\\', '/':
		return c, nil
	case 'b':
		return '\b', nil
	case 'f':
		return '\f', nil
	case 'n':
		return '\n', nil
	case 'r':
		return '\r', nil
	case 't':
		return '\t', nil
	case 'u':
		return hexRune(in)
	}
	return 0, &brokenString{[]byte{'\\', c}}
}

// hexRune reads the four digits of an escape. Characters beyond ASCII become 0, which is not base64.
func hexRune(in *bufio.Reader) (byte, error) {
	var n uint32
	read := []byte(`\u`)
	for range 4 {
		c, err := in.ReadByte()
		if err != nil {
			return 0, err
		}
		read = append(read, c)
		switch {
		case c >= '0' && c <= '9':
			n = n<<4 | uint32(c-'0')
		case c|0x20 >= 'a' && c|0x20 <= 'f':
			n = n<<4 | uint32(c|0x20-'a'+10)
		default:
			return 0, &brokenString{read}
		}
	}
	if n > 0x7F {
		return 0, nil
	}
	return byte(n), nil
}
