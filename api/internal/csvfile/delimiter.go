package csvfile

import (
	"bytes"
	"fmt"
	"strings"
)

// Delimiters are the supported field separators. If two of them fit a file equally well, the
// earlier one is used.
const Delimiters = ";,\t|"

// ParseDelimiter parses a delimiter given by the user: one of ; , | or a tab, as the character,
// the word tab or \t. An empty text returns 0: detect the delimiter.
func ParseDelimiter(text string) (byte, error) {
	switch strings.ToLower(text) {
	case "":
		return 0, nil
	case "tab", `\t`:
		return '\t', nil
	}
	if len(text) == 1 && strings.Contains(Delimiters, text) {
		return text[0], nil
	}
	return 0, fmt.Errorf(`%.40q must be one of ";", ",", "|" and "tab"`, text)
}

// delimiterLine parses a first line such as sep=; by which a file tells Excel its delimiter.
func delimiterLine(line []byte) (byte, bool) {
	line = bytes.Trim(line, " \"")
	const prefix = "sep="
	if len(line) <= len(prefix) || !strings.EqualFold(string(line[:len(prefix)]), prefix) {
		return 0, false
	}
	rest := line[len(prefix):]
	for _, b := range rest {
		if b != rest[0] && b != '"' && b != ' ' { // Excel saves it as sep=;;;;
			return 0, false
		}
	}
	return rest[0], strings.IndexByte(Delimiters, rest[0]) >= 0
}

// probes is how many rows are examined to find the delimiter, within sampleBytes.
const probes = 100

// delimiterScore measures how well a delimiter fits the beginning of a file.
type delimiterScore struct {
	email  bool    // one of the columns is an email column
	steady float64 // fraction of the rows with as many fields as the header
	fields int     // of the header
}

func (g delimiterScore) better(than delimiterScore) bool {
	switch {
	case g.email != than.email:
		return g.email
	case g.steady != than.steady:
		return g.steady > than.steady
	}
	return g.fields > than.fields
}

// detectDelimiter detects the delimiter of the rows from the window's position on: the one that divides the
// header and the following rows into the same number of fields. Delimiters in quotes are ignored.
// A file of one column has none, so any will do.
func detectDelimiter(t tokenizer) byte {
	if t.end-t.pos > sampleBytes {
		t.end, t.eof = t.pos+sampleBytes, false
		t.lf = min(t.lf, t.end)
	}
	best, delimiter := delimiterScore{}, Delimiters[0]
	for _, candidate := range []byte(Delimiters) {
		probe := t
		probe.delimiter, probe.fields = candidate, nil
		if g := probe.score(); g.fields > 1 && (best.fields == 0 || g.better(best)) {
			best, delimiter = g, candidate
		}
	}
	return delimiter
}

func (t *tokenizer) score() delimiterScore {
	var g delimiterScore
	rows, same := 0, 0
	for rows < probes && t.pos < t.end {
		v := t.scan()
		if v == short || v == overlong {
			break
		}
		switch {
		case v == found && t.filled == 0:
		case g.fields == 0:
			if v == unclosed {
				return delimiterScore{}
			}
			g.fields = t.count
			for _, f := range t.fields {
				g.email = g.email || meansEmail(string(t.buf[f.start:f.end]))
			}
		default:
			rows++
			if v == found && t.count == g.fields {
				same++
			}
		}
		t.pos = t.next
	}
	g.steady = 1
	if rows > 0 {
		g.steady = float64(same) / float64(rows)
	}
	return g
}
