package mailmerge

import (
	"strings"

	"golang.org/x/net/html"
)

// addressReader reads an address, or a list of them, through the literals and fields of an
// attribute, to determine in which part of it a field is.
type addressReader struct {
	list bool
	part part
	// text is the beginning of the address while part is partBegin, and the host, with hostField
	// for each field, while it is partHost.
	text string
}

// part is the part of the address being read.
type part int

const (
	partBegin   part = iota // the scheme is not known yet
	partUnknown             // after a field at the beginning of the address
	partHost
	partPath
	partQuery // or fragment
	partMailbox
	partPhone
)

// hostField represents a field in the text of a host.
const hostField = "\x00"

// maxHost is the maximum length of a host name in characters.
const maxHost = 253

// Messages for fields in an address.
const (
	detailBegin = "an address with a field must begin with https://, http://, mailto:, tel: or #, or with the field itself"
	detailNext  = "the field that begins an address must be followed by / ? or # before the next field"
	detailHost  = "a field in a host name must be the whole host or be followed by the rest of it, as in https://{{field}}.example.com/"
	detailCode  = "a field is not allowed directly after an incomplete % code; write %25 for a literal %"
)

// address places the fields of an attribute with an address.
func (m *markup) address(start, end int, list bool) *Fault {
	reader := addressReader{list: list}
	for done := start; ; {
		if !m.holds(end) {
			detail := reader.literal(decodeAttribute(m.doc[done:end]))
			if detail == "" {
				detail = reader.finish()
			}
			if detail != "" {
				return m.fault(done-1, CodeInAddress, detail)
			}
			return nil
		}
		at := m.next().at
		if fault := m.reference(start); fault != nil {
			return fault
		}
		literal := decodeAttribute(m.doc[done:at])
		detail := reader.literal(literal)
		if detail == "" && endsInCode(skipped(literal)) {
			detail = detailCode
		}
		var p place
		if detail == "" {
			p, detail = reader.field()
		}
		if detail != "" {
			return m.fault(at, CodeInAddress, detail)
		}
		m.put(p)
		done = at + 1
	}
}

// literal reads the template's text between fields. The detail returned is empty or says what is
// wrong with the fields before it.
func (r *addressReader) literal(text string) (detail string) {
	if i := strings.IndexFunc(text, isSeparator); r.list && i >= 0 {
		if detail = r.advance(skipped(text[:i])); detail == "" {
			detail = r.finish()
		}
		*r = addressReader{list: true}
		text = text[strings.LastIndexFunc(text, isSeparator)+1:]
	}
	if detail != "" {
		return detail
	}
	return r.advance(skipped(text))
}

// advance reads a literal without separators.
func (r *addressReader) advance(text string) (detail string) {
	switch r.part {
	case partBegin:
		r.text += text
	case partUnknown, partHost:
		i := strings.IndexAny(text, `/\?#`)
		if i < 0 {
			r.text += text
			return ""
		}
		r.text += text[:i]
		detail = r.finish()
		r.part = partQuery
		if text[i] == '/' || text[i] == '\\' {
			r.part = partPath
			return detail + r.advance(text[i+1:])
		}
	case partPath, partMailbox, partPhone:
		if strings.ContainsAny(text, "?#") {
			r.part = partQuery
		}
	}
	return detail
}

// field returns the place of a field at the current position.
func (r *addressReader) field() (p place, detail string) {
	if r.part == partBegin {
		text := strings.TrimLeft(r.text, " ")
		if text == "" {
			r.part = partUnknown
			if r.list {
				return placeListed, ""
			}
			return placeAddress, ""
		}
		r.text = ""
		rest, ok := r.begin(text)
		if !ok {
			return 0, detailBegin
		}
		if detail = r.advance(rest); detail != "" {
			return 0, detail
		}
	}
	switch r.part {
	case partHost:
		if len(r.text) >= maxHost {
			return 0, detailHost
		}
		r.text += hostField
		return placeHost, ""
	case partPath:
		return placePath, ""
	case partMailbox:
		return placeMailbox, ""
	case partPhone:
		return placePhone, ""
	case partQuery:
		return placeQuery, ""
	}
	return 0, detailNext
}

// begin reads the scheme.
func (r *addressReader) begin(text string) (rest string, ok bool) {
	if strings.HasPrefix(text, "#") {
		r.part = partQuery
		return text[1:], true
	}
	scheme, rest, ok := cutScheme(text)
	switch scheme {
	case "mailto:":
		r.part = partMailbox
	case "tel:":
		r.part = partPhone
	default:
		r.part = partHost
	}
	return rest, ok
}

// finish checks the host, if that was read last. A literal must follow the fields in it, so that no
// value determines the registered domain, unless the value is the whole host.
func (r *addressReader) finish() (detail string) {
	last := strings.LastIndex(r.text, hostField)
	if r.part != partHost || last < 0 {
		return ""
	}
	host, port, _ := strings.Cut(r.text, ":")
	if strings.ContainsFunc(port, func(c rune) bool { return c < '0' || c > '9' }) {
		return detailHost
	}
	if host == hostField {
		return ""
	}
	_, domain, ok := strings.Cut(host[last:], ".")
	if !ok || !isHost(domain) || !isHost(strings.ReplaceAll(host, hostField, "x")) {
		return detailHost
	}
	return ""
}

// cutScheme cuts one of the schemes that may be used with fields. Browsers skip more slashes than
// two, so what follows them could be the host: that is rejected.
func cutScheme(address string) (scheme, rest string, ok bool) {
	for _, scheme := range []string{"https://", "http://", "mailto:", "tel:"} {
		if len(address) >= len(scheme) && strings.EqualFold(address[:len(scheme)], scheme) {
			rest := address[len(scheme):]
			return scheme, rest, !strings.HasPrefix(rest, "/") && !strings.HasPrefix(rest, `\`)
		}
	}
	return "", address, false
}

func isSeparator(r rune) bool { return r < 0x80 && separates(byte(r)) }

// skipped removes the characters that some client ignores inside an address.
func skipped(text string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7F || r == '\uFFFD' {
			return -1
		}
		return r
	}, text)
}

// endsInCode reports whether text ends with % or with % and one hexadecimal digit, which a value
// would complete to a percent-encoded byte.
func endsInCode(text string) bool {
	if strings.HasSuffix(text, "%") {
		return true
	}
	n := len(text)
	return n >= 2 && text[n-2] == '%' && isAlphanumeric(text[n-1])
}

// decodeAttribute resolves the character references in a part of a quoted value.
func decodeAttribute(raw string) string {
	if strings.IndexByte(raw, '&') < 0 {
		return raw
	}
	quote := `"`
	if strings.Contains(raw, quote) {
		quote = "'" // the part was quoted like this
	}
	z := html.NewTokenizer(strings.NewReader("<a b=" + quote + raw + quote + ">"))
	z.Next()
	z.TagName()
	_, value, _ := z.TagAttr()
	return string(value)
}
