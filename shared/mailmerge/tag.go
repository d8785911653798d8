package mailmerge

import (
	"slices"
	"strings"

	"golang.org/x/net/html"
)

// startTag places the fields in a start tag and returns its name in lower case.
func (m *markup) startTag(z *html.Tokenizer, start, end int) (string, *Fault) {
	name, more := z.TagName()
	element := string(name)
	if !m.holds(end) {
		return element, nil
	}
	var names []string
	for more {
		var key []byte
		key, _, more = z.TagAttr()
		names = append(names, string(key))
	}
	t, ok := readTag(m.doc[start:end])
	if !ok || t.name != element || !slices.Equal(t.names(), names) {
		return "", m.fault(m.next().at, CodeAmbiguous,
			"clients parse this tag differently: separate attributes by spaces, use each name once and quote the values")
	}
	for m.holds(end) {
		if fault := m.tagField(&t, start); fault != nil {
			return "", fault
		}
	}
	return element, nil
}

// tagField places the next field and all others in the same attribute. start is where the tag
// begins.
func (m *markup) tagField(t *tag, start int) *Fault {
	at := m.next().at
	i := slices.IndexFunc(t.attributes, func(a attribute) bool { return at < start+a.end })
	if at < start+1+len(t.name) {
		return m.fault(at, CodeInTag, "a field is not allowed in the name of an element or directly after <; write &lt; for a literal <")
	}
	if i < 0 || at < start+t.attributes[i].start {
		return m.fault(at, CodeInName, "in a tag, a field is allowed only as an attribute's value: name=\"{{field}}\"")
	}
	a := t.attributes[i]
	if a.quote == 0 {
		return m.fault(at, CodeUnquoted, "the value of "+a.name+" must be in quotes: "+a.name+"=\"{{field}}\"")
	}
	role, fault := roleOf(t, a.name)
	if fault != nil {
		return m.fault(at, fault.Code, fault.Detail)
	}
	if role != rolePlain {
		if m.holdsSection(start + a.end) {
			return m.fault(at, CodeSectionPlace, "a section is not allowed in an address: put it around the whole element")
		}
		return m.address(start+a.start, start+a.end, role == roleAddresses)
	}
	m.container = start + a.start + 1
	defer func() { m.container = 0 }()
	for m.holds(start + a.end) {
		if fault := m.reference(start + a.start); fault != nil {
			return fault
		}
		m.put(placeMarkup)
	}
	return nil
}

// holdsSection reports whether a section begins or ends before end.
func (m *markup) holdsSection(end int) bool {
	for _, s := range m.positions[len(m.places):] {
		if s.at >= end {
			return false
		}
		if s.kind != Variable {
			return true
		}
	}
	return false
}

// tag is a start tag in the plain form on which all parsers agree.
type tag struct {
	name       string
	attributes []attribute
}

// attribute is the position of a value in the tag, without its quotes.
type attribute struct {
	name       string
	start, end int
	quote      byte // 0 for none
}

func (t *tag) names() []string {
	var names []string
	for _, a := range t.attributes {
		names = append(names, a.name)
	}
	return names
}

func (t *tag) has(name string) bool {
	return slices.ContainsFunc(t.attributes, func(a attribute) bool { return a.name == name })
}

// readTag reads a whole tag from "<" to ">".
func readTag(raw string) (t tag, ok bool) {
	i := 1 + nameLen(raw[1:])
	t.name = strings.ToLower(raw[1:i])
	for {
		i += spaceLen(raw[i:])
		if rest := raw[i:]; rest == ">" || rest == "/>" {
			return t, t.name != ""
		}
		a := attribute{start: i + nameLen(raw[i:])}
		a.name = strings.ToLower(raw[i:a.start])
		if a.name == "" {
			return t, false
		}
		i = a.start
		a.end = i
		equals := i + spaceLen(raw[i:])
		if raw[equals] == '=' {
			a.start = equals + 1 + spaceLen(raw[equals+1:])
			if a, ok = readValue(raw, a); !ok {
				return t, false
			}
			i = a.end
			if a.quote != 0 {
				i++
			}
		}
		t.attributes = append(t.attributes, a)
	}
}

// readValue completes an attribute whose value begins at start, quotes included.
func readValue(raw string, a attribute) (attribute, bool) {
	if q := raw[a.start]; q == '"' || q == '\'' {
		a.quote = q
		a.start++
		n := strings.IndexByte(raw[a.start:], q)
		a.end = a.start + n
		return a, n >= 0
	}
	n := strings.IndexAny(raw[a.start:], " \t\r\n\f>")
	if n <= 0 || strings.ContainsAny(raw[a.start:a.start+n], "\"'`<=") {
		return a, false
	}
	a.end = a.start + n
	return a, true
}

// nameLen is the length of the name text begins with: letters, digits and - _ : .
func nameLen(text string) int {
	n := 0
	for n < len(text) && (isAlphanumeric(text[n]) || strings.IndexByte("-_:.", text[n]) >= 0) {
		n++
	}
	return n
}

func spaceLen(text string) int {
	return len(text) - len(strings.TrimLeft(text, " \t\r\n\f"))
}
