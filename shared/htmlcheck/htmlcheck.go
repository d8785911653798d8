// Package htmlcheck decides whether the HTML body of an email may be sent: it
// refuses script elements, event handlers, and addresses that run script or open
// files and programs of the reader's computer, in any disguise a mail client could
// see through. A script element that holds JSON-LD (Gmail markup) may be sent: it runs
// nowhere.
//
// The api checks a body before it stores an email and stores the result with the body's hash and
// Version; the worker checks again only if one of the two changed.
//
// A body is read up to four times, because mail clients differ and each reading
// sees what another one misses:
//
//   - as tokens, the way a browser reads them. The tree builder drops some
//     elements (<td onclick> outside a table, a last tag without its ">")
//     which a client with another parser still shows.
//   - as tokens, with the content of noscript, iframe and their kin read as
//     markup. Mail clients run without script, so noscript is live there.
//   - as a tree with scripting on, which knows that <svg><style> holds markup.
//   - as a tree with scripting off, which does so inside noscript.
//
// Readings that provably see nothing new are left out; an ordinary email is
// read once.
package htmlcheck

import (
	"strings"
	"unicode/utf8"
)

// Version identifies the rules. It is stored with each result; raise it with every change that could change a result,
// also of the form in which templates are checked (mailmerge.Checked), so that stored ones are checked again.
const Version int16 = 3

// MaxBytes is the largest body in bytes of UTF-8: 512 KiB.
const MaxBytes = 512 << 10

// Check returns nil when html may be sent and a *Violation when not.
func Check(html string) error {
	return check(html, false)
}

// check implements Check; thorough makes every reading, needed or not, so that a test can compare
// the results.
func check(html string, thorough bool) error {
	if v := checkText(html); v != nil {
		return v
	}
	first := list{limit: 1}
	in := inspector{thorough: thorough, found: &first}
	in.document(html, first.add)
	if len(first.all) > 0 {
		return first.all[0]
	}
	return nil
}

// CheckAll returns all violations, at most limit of them (two or more), with their lines if a
// reading of tokens finds them; nil if Check accepts html.
func CheckAll(html string, limit int) []*Violation {
	if v := checkText(html); v != nil {
		return []*Violation{v}
	}
	found := list{limit: limit, lines: true}
	in := inspector{found: &found}
	in.document(html, found.add)
	return found.all
}

// checkText checks what does not require reading markup.
func checkText(html string) *Violation {
	switch {
	case len(html) > MaxBytes:
		return ErrTooLarge
	case strings.TrimSpace(html) == "":
		return ErrEmpty
	case !utf8.ValidString(html):
		return ErrNotUTF8
	case strings.IndexByte(html, 0) >= 0:
		return ErrNUL
	}
	return nil
}
