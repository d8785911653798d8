package csvfile

import (
	"bytes"
	"crypto/sha256"
	"hash"
	"unicode/utf8"
)

// sampleBytes is how much of a file's beginning is kept to tell what it is: a few
// hundred rows.
const sampleBytes = 64 << 10

// Inspector is an io.Writer that a whole upload is written through while it goes to
// storage. Its Write never fails. It keeps 64 KiB, whatever the upload's size.
type Inspector struct {
	size   int64
	digest hash.Hash
	sample []byte

	nul     bool
	invalid bool
	broken  int    // 1-based line of the first byte that is not UTF-8, once invalid
	partial []byte // a character that the last chunk cut, at most 3 bytes
	lf, cr  int    // line ends before the chunk at hand, counted until invalid
}

// NewInspector has seen nothing yet.
func NewInspector() *Inspector {
	return &Inspector{digest: sha256.New()}
}

// Write takes the next piece of the upload.
func (in *Inspector) Write(p []byte) (int, error) {
	in.size += int64(len(p))
	in.digest.Write(p)
	if room := sampleBytes - len(in.sample); room > 0 {
		in.sample = append(in.sample, p[:min(room, len(p))]...)
	}
	in.nul = in.nul || bytes.IndexByte(p, 0) >= 0
	if !in.invalid {
		in.follow(p)
	}
	return len(p), nil
}

// follow checks the next piece for UTF-8, with the character that the piece before it
// may have cut.
func (in *Inspector) follow(p []byte) {
	for len(in.partial) > 0 && !utf8.FullRune(in.partial) {
		if len(p) == 0 {
			return
		}
		in.partial, p = append(in.partial, p[0]), p[1:]
	}
	if !utf8.Valid(in.partial) {
		in.found(nil)
		return
	}
	whole := p[:len(p)-cutTail(p)]
	if !utf8.Valid(whole) {
		in.found(whole[:validPrefix(whole)])
		return
	}
	in.lf += bytes.Count(whole, []byte{'\n'})
	in.cr += bytes.Count(whole, []byte{'\r'})
	in.partial = append(in.partial[:0], p[len(whole):]...)
}

// found notes the line of the first bad byte, which before precedes in its chunk. In
// a file with CRLF line ends both counts agree, in one of CR alone there is no LF.
func (in *Inspector) found(before []byte) {
	in.invalid = true
	in.lf += bytes.Count(before, []byte{'\n'})
	in.cr += bytes.Count(before, []byte{'\r'})
	in.broken = 1 + in.lf
	if in.lf == 0 {
		in.broken = 1 + in.cr
	}
}

// cutTail is the length of a character at the end of p that goes on after it.
func cutTail(p []byte) int {
	for n := 1; n < utf8.UTFMax && n <= len(p); n++ {
		tail := p[len(p)-n:]
		if utf8.RuneStart(tail[0]) {
			if utf8.FullRune(tail) {
				return 0
			}
			return n
		}
	}
	return 0
}

func validPrefix(p []byte) int {
	n := 0
	for n < len(p) {
		r, size := utf8.DecodeRune(p[n:])
		if r == utf8.RuneError && size == 1 {
			break
		}
		n += size
	}
	return n
}

// Inspection is what has been seen so far; after the last Write, the file.
func (in *Inspector) Inspection() Inspection {
	i := Inspection{Size: in.size, sample: in.sample, nul: in.nul, utf8: !in.invalid, broken: in.broken}
	in.digest.Sum(i.SHA256[:0])
	if i.utf8 && len(in.partial) > 0 { // the file ends within a character
		ended := *in
		ended.found(nil)
		i.utf8, i.broken = false, ended.broken
	}
	return i
}
