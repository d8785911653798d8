package csvfile

import (
	"bytes"
	"encoding/binary"
	"unicode/utf8"
)

// occurrences counts occurrences and the line of the first one.
type occurrences struct {
	count int
	line  int // physical line, 1-based; 0 if count is 0
}

// encodingStats counts what the bytes of a file, read as 8-bit text, say about its encoding. It covers the
// whole file, because a single name near its end can decide.
type encodingStats struct {
	ends int // line ends so far
	nul  int // line of the first NUL; 0 = none

	// wellFormed are multi-byte UTF-8 characters that are implausible in Windows-1252: João would be
	// "JoÃ£o" there.
	wellFormed occurrences
	// coincidence are UTF-8 characters that are also plausible in Windows-1252: “IRMÃ” ends with the
	// two bytes of an Ô in UTF-8.
	coincidence occurrences
	// implausibleUTF8 are UTF-8 characters that are implausible at their place, while Windows-1252 has a letter
	// and one or two signs there: in UTF-8, “METRÔ” would end with U+0514, and “café…” would have a
	// Chinese character after "caf".
	implausibleUTF8 occurrences
	// malformed are bytes that are not part of a UTF-8 character.
	malformed occurrences
	// surrogates are halves of a surrogate pair, encoded with three bytes each (CESU-8), which never
	// occur in Windows-1252.
	surrogates occurrences
	// undefined are bytes that Windows-1252 does not define.
	undefined occurrences
	// controls are bytes that are control characters in ISO-8859-15, and signs or letters in Windows-1252.
	controls occurrences
	// currency are bytes of the sign ¤ of Windows-1252, which no text has: € of ISO-8859-15, for example.
	currency occurrences
	// unlikely are bytes that are implausible in Windows-1252 at their place ("Jos‚", "RazÆo"), while
	// CP850 and Macintosh have letters there; likely are accented letters of Windows-1252.
	unlikely, likely occurrences
}

// lookAhead is how many bytes after a byte decide what it is: the rest of its character and the next
// one.
const lookAhead = utf8.UTFMax

// take processes data from an index on and returns the index it reached: the end of data if it is final,
// else the position where a character could continue in the next piece. The byte before the index, if
// any, was processed before.
func (e *encodingStats) take(data []byte, from int, final bool) int {
	end := len(data)
	if !final {
		end = max(from, end-lookAhead)
	}
	i := from
	for i < end {
		if i = skipASCII(data, i, end); i >= end {
			break
		}
		i += e.character(data, i, from)
	}
	if e.nul == 0 {
		if n := bytes.IndexByte(data[from:i], 0); n >= 0 {
			e.nul = 1 + e.ends + lineEnds(data, from, from+n)
		}
	}
	e.ends += lineEnds(data, from, i)
	return i
}

// character classifies the bytes at i, the first of which is not ASCII, and returns how many belong
// together. The line ends before index base are already counted.
func (e *encodingStats) character(data []byte, i, base int) int {
	_, size := utf8.DecodeRune(data[i:])
	at := func(s *occurrences) {
		if s.count == 0 {
			s.line = 1 + e.ends + lineEnds(data, base, i)
		}
		s.count++
	}
	for _, b := range data[i : i+size] {
		if b < 0xA0 {
			at(&e.controls)
		}
		if isUndefined(b) {
			at(&e.undefined)
		}
	}
	before, after := byteAt(data, i-1), byteAt(data, i+size)
	switch {
	case size == 1:
		at(&e.malformed)
		if isSurrogate(data[i], byteAt(data, i+1), byteAt(data, i+2)) {
			at(&e.surrogates)
		}
		if data[i] == 0xA4 {
			at(&e.currency)
		}
		switch {
		case isUnlikely(before, data[i], after):
			at(&e.unlikely)
		case data[i] >= 0xC0:
			at(&e.likely)
		}
	case size == 2 && isCoincidence(before, data[i], data[i+1], after):
		if isForeign(before, data[i], data[i+1]) {
			at(&e.implausibleUTF8)
		} else {
			at(&e.coincidence)
		}
	case size == 3 && isLetterByte(before) && isSign(data[i+1]) && isSign(data[i+2]) && !isWordByte(after):
		at(&e.implausibleUTF8)
	default:
		at(&e.wellFormed)
	}
	return size
}

// skipASCII returns the index of the next non-ASCII byte, or end.
func skipASCII(data []byte, i, end int) int {
	for ; i+8 <= end; i += 8 {
		if binary.LittleEndian.Uint64(data[i:])&0x8080808080808080 != 0 {
			break
		}
	}
	for i < end && data[i] < utf8.RuneSelf {
		i++
	}
	return i
}

// lineEnds counts the line ends in data[from:to]: LF, CR and CRLF, which counts with its CR. The byte
// before from may be the CR of a LF at from.
func lineEnds(data []byte, from, to int) int {
	part := data[from:to]
	n := bytes.Count(part, []byte{'\n'})
	if cr := bytes.Count(part, []byte{'\r'}); cr > 0 {
		n += cr - bytes.Count(part, []byte("\r\n"))
	}
	if from > 0 && from < to && data[from] == '\n' && data[from-1] == '\r' {
		n--
	}
	return n
}

// byteAt returns 0 outside of the data.
func byteAt(data []byte, i int) byte {
	if i < 0 || i >= len(data) {
		return 0
	}
	return data[i]
}

// isUndefined reports whether Windows-1252 does not define the byte.
func isUndefined(b byte) bool {
	switch b {
	case 0x81, 0x8D, 0x8F, 0x90, 0x9D:
		return true
	}
	return false
}

// isSurrogate reports whether three bytes encode a surrogate. An í followed by two signs, such as a
// no-break space and a dash, is text.
func isSurrogate(lead, second, third byte) bool {
	return lead == 0xED && second >= 0xA0 && second <= 0xBF && third >= 0x80 && third <= 0xBF && (!isSign(second) || !isSign(third))
}

// isUnlikely reports whether a byte is, in Windows-1252, a sign that never occurs within or at the end
// of a word, or a capital between small letters. It is a letter of MS-DOS or the Mac.
func isUnlikely(before, b, after byte) bool {
	if !isWordByte(before) {
		return false
	}
	if !isWordByte(after) {
		switch b {
		case 0x82, 0x83, 0x84, 0x86, 0x87, 0x88, 0x89, 0x8B: // ‚ ƒ „ † ‡ ˆ ‰ ‹
			return true
		}
		return b == 0x8E && before >= 'a' // Ž
	}
	switch b {
	case 0x80, 0x82, 0x83, 0x84, 0x86, 0x87, 0x88, 0x89, 0x8B, 0x98, 0x9B, // € ‚ ƒ „ † ‡ ˆ ‰ ‹ ˜ ›
		0xA1, 0xA2, 0xA3, 0xA4, 0xA5, 0xA6, 0xA7, 0xAC, 0xB5, 0xB6: // ¡ ¢ £ ¤ ¥ ¦ § ¬ µ ¶
		return true
	}
	capital := b == 0x8A || b == 0x8C || b == 0x8E || b >= 0xC0 && b <= 0xDE
	return capital && isSmall(before) && after >= 'a'
}

// isSmall tells the small letters of Windows-1252, but ÿ and ž: D’Ávila has none before its Á.
func isSmall(b byte) bool { return b >= 'a' && b <= 'z' || b >= 0xDF }

// isWordByte reports whether a byte is a letter, including accented ones in any encoding.
func isWordByte(b byte) bool { return isLetterByte(b) || b >= 0x80 }

// isCoincidence reports whether two bytes are a UTF-8 character and, equally plausible, the end of a word
// in capitals followed by a sign: Ã”, É…, Õ and a no-break space. No such word ends with Â, the first
// byte of º and ª.
func isCoincidence(before, lead, trail, after byte) bool {
	if lead == 0xC2 || isLetterByte(after) || before >= 'a' && before <= 'z' {
		return false
	}
	return isSign(trail)
}

// isForeign reports whether a coincidence is, in UTF-8, implausible as a letter of the word before it: a
// rare Latin one (É…, but not the ș of Romanian), or one of another script after a Latin capital (Ô”).
func isForeign(before, lead, trail byte) bool {
	switch {
	case lead == 0xC8 && trail == 0x99:
		return false
	case lead >= 0xC6 && lead <= 0xCD: // U+0180 to U+037F
		return true
	}
	return lead > 0xCD && isLetterByte(before)
}

// isSign reports whether a byte is a sign of Windows-1252 that occurs after a word.
func isSign(b byte) bool {
	switch b {
	case 0x85, 0x91, 0x92, 0x93, 0x94, 0x95, 0x96, 0x97, 0x99, 0xA0, 0xAB, 0xAE, 0xB4, 0xBB: // … ‘ ’ “ ” • – — ™ NBSP « ® ´ »
		return true
	}
	return false
}

func isLetterByte(b byte) bool { return b|0x20 >= 'a' && b|0x20 <= 'z' }
