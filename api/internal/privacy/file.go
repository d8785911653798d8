package privacy

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/google/uuid"
	"golang.org/x/text/encoding/unicode"
	"golang.org/x/text/transform"

	"email-gateway/api/internal/mailing"
	"email-gateway/shared/blob"
	"email-gateway/shared/keyring"
	"email-gateway/shared/store/person"
)

// FileLines lists the lines of an uploaded file that name the person.
type FileLines struct {
	MailingID uuid.UUID `json:"mailingId"`
	Filename  string    `json:"filename"`
	Lines     []int     `json:"lines"`
}

// linesOf scans a mailing's file. Without an error, the result is nil only if the file does not
// exist.
func (a *Archive) linesOf(ctx context.Context, p subject, m person.Mailing) (lines []int, err error) {
	stored, err := a.Bucket.Get(ctx, mailing.FileKey(p.CompanyID, m.ID))
	switch {
	case errors.Is(err, blob.ErrNotFound):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("read the file of mailing %s: %w", m.ID, err)
	}
	defer func() { err = errors.Join(err, stored.Close()) }()
	plain, err := a.Ring.DecryptReader(stored, mailing.FileBinding(p.CompanyID, m.ID))
	if err != nil {
		return nil, fmt.Errorf("decrypt the file of mailing %s: %w", m.ID, err)
	}
	lines, err = p.linesIn(plain)
	if err != nil {
		return nil, fmt.Errorf("read the file of mailing %s: %w", m.ID, err)
	}
	return lines, nil
}

// unreadable reports that a file or a number is damaged or its key is not in the ring: such a value
// must not block the rest.
func unreadable(err error) bool {
	return errors.Is(err, keyring.ErrUndecryptable) || errors.Is(err, keyring.ErrNoKey)
}

// maxLine limits the lines that are examined as a whole (bytes). A file may be one long line;
// longer lines are examined in overlapping parts.
const maxLine, overlap = 1 << 20, 1 << 10

// linesIn finds the lines, counted from 1 as csvfile counts them, that contain an address or the number of the
// person, in any column and punctuation. It does not parse columns, because unreadable lines contain
// personal data too.
func (p *subject) linesIn(r io.Reader) ([]int, error) {
	found := []int{}
	decoded := transform.NewReader(r, unicode.BOMOverride(transform.Nop))
	reader := bufio.NewReaderSize(&lineFeeds{from: decoded}, maxLine)
	last := 0 // last line found
	var tail []byte
	for n := 1; ; {
		part, err := reader.ReadSlice('\n')
		if last != n && p.names(append(tail, part...)) {
			found, last = append(found, n), n
		}
		switch {
		case err == nil:
			n, tail = n+1, nil
		case errors.Is(err, bufio.ErrBufferFull):
			tail = bytes.Clone(part[len(part)-overlap:])
		case errors.Is(err, io.EOF):
			return found, nil
		default:
			return nil, err
		}
	}
}

// lineFeeds reads a text with an LF for each line end (LF, CRLF or CR), and without the NULs of UTF-16 text that
// begins without a byte order mark.
type lineFeeds struct {
	from    io.Reader
	afterCR bool // the last byte was a CR; an LF belongs to it
}

func (l *lineFeeds) Read(p []byte) (int, error) {
	for {
		n, err := l.from.Read(p)
		kept := l.convert(p[:n])
		if kept > 0 || n == 0 || err != nil {
			return kept, err
		}
	}
}

// convert converts a part of the text in place and returns its new length.
func (l *lineFeeds) convert(part []byte) (kept int) {
	for _, b := range part {
		if b == 0 {
			continue
		}
		second := b == '\n' && l.afterCR
		if l.afterCR = b == '\r'; l.afterCR {
			b = '\n'
		}
		if !second {
			part[kept] = b
			kept++
		}
	}
	return kept
}

// names reports whether a line contains an identifier of the person.
func (p *subject) names(line []byte) bool {
	text := strings.ToLower(string(line))
	for _, address := range p.spelled {
		if standsAlone(text, address, "abcdefghijklmnopqrstuvwxyz0123456789.!#$%&'*+/=?^_`{|}~-@") {
			return true
		}
	}
	if p.taxID == "" {
		return false
	}
	return holdsNumber(text, strings.ToLower(p.taxID))
}

// shortestNumber is how many digits remain of a number whose leading zeros a spreadsheet has removed, for a search without
// them: fewer may be any amount.
const shortestNumber = 8

// holdsNumber reports whether text contains the number, with or without punctuation, without the leading zeros too, which a
// spreadsheet removes from a column of numbers, and without further digits next to it.
func holdsNumber(text, number string) bool {
	bare := strings.TrimLeft(number, "0")
	return holdsSigns(text, number, "") || len(bare) >= shortestNumber && holdsSigns(text, bare, ".-/")
}

// holdsSigns reports whether text contains the number, after any zeros, but not after a digit and one of the separators.
func holdsSigns(text, number, separators string) bool {
	digit := func(i int) bool { return i >= 0 && i < len(text) && text[i] >= '0' && text[i] <= '9' }
	lettered := strings.ContainsAny(number, "abcdefghijklmnopqrstuvwxyz")
	sign := func(i int) bool {
		return digit(i) || lettered && i >= 0 && i < len(text) && text[i] >= 'a' && text[i] <= 'z'
	}
	before := -1 // the last byte before begin that is no zero
	for begin := 0; begin < len(text); begin++ {
		if begin > 0 && text[begin-1] != '0' {
			before = begin - 1
		}
		if text[begin] != number[0] || sign(before) || digit(before-1) && strings.IndexByte(separators, text[before]) >= 0 {
			continue
		}
		i, met := begin, 0
		for ; i < len(text) && met < len(number); i++ {
			switch {
			case text[i] == number[met]:
				met++
			case !punctuates(text[i]):
				i = len(text)
			}
		}
		if met == len(number) && !sign(i) {
			return true
		}
	}
	return false
}

// punctuates reports whether a byte may occur within a number: ASCII punctuation, and the dashes and
// spaces of word processors in any encoding, including UTF-16 without its NULs.
func punctuates(b byte) bool {
	return b >= 0x80 || b >= 0x10 && b <= 0x15 || strings.IndexByte(".-/ ", b) >= 0
}

// standsAlone reports whether text contains word without one of the letters next to it. A dot after
// it may end a sentence.
func standsAlone(text, word, letters string) bool {
	letter := func(i int) bool { return i >= 0 && i < len(text) && strings.IndexByte(letters, text[i]) >= 0 }
	for from := 0; ; {
		i := strings.Index(text[from:], word)
		if i < 0 {
			return false
		}
		begin, end := from+i, from+i+len(word)
		sentence := end < len(text) && text[end] == '.' && !letter(end+1)
		if !letter(begin-1) && (sentence || !letter(end)) {
			return true
		}
		from = begin + 1
	}
}
