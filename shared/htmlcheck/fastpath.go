package htmlcheck

import "strings"

// ordinaryReader reads the markup that nearly every email consists of, several
// times faster than the tokenizer and without allocating.
//
// It can only accept. It knows the part of HTML on which all parsers agree: complete tags with
// lower-case names and values with plain ends, complete comments, and style and title as the only
// elements with raw text. For those it sees the same tokens as the tokenizer and applies the same
// rules; at the first other character, or the first finding, it gives up and the full readings
// decide.
type ordinaryReader struct {
	text      string // what is left
	open      int    // upper bound of open elements, see trees
	inComment bool
}

// ordinary reports whether markup is ordinary and breaks no rule, and whether
// its elements could be nested too deep.
func ordinary(markup string) (ok, deep bool) {
	r := ordinaryReader{text: markup}
	return r.read(), r.open > maxOpen
}

func (r *ordinaryReader) read() bool {
	for {
		i := strings.IndexByte(r.text, '<')
		if i < 0 {
			return true
		}
		r.text = r.text[i+1:]
		if r.text == "" {
			return true
		}
		ok := true
		switch c := r.text[0]; {
		case c == '/':
			ok = r.endTag()
		case c == '!':
			ok = r.declaration()
		case isLetter(c):
			ok = r.startTag()
		case c == '?':
			ok = false
		}
		if !ok {
			return false
		}
	}
}

// endTag accepts </name> only.
func (r *ordinaryReader) endTag() bool {
	r.text = r.text[1:]
	if r.name() == "" {
		return false
	}
	r.space()
	return r.take('>')
}

// declaration accepts complete comments and anything else up to the next ">":
// a document type, or <![endif]>.
func (r *ordinaryReader) declaration() bool {
	comment, ok := strings.CutPrefix(r.text, "!--")
	if !ok {
		_, rest, closed := strings.Cut(r.text, ">")
		r.text = rest
		return closed
	}
	if r.inComment || strings.HasPrefix(comment, ">") || strings.HasPrefix(comment, "->") {
		return false
	}
	end := strings.Index(comment, "-->")
	if end < 0 || strings.Contains(comment[:end], "--!>") {
		return false
	}
	end += len("-->")
	r.text = comment[end:]
	return ordinaryComment(comment[:end])
}

// ordinaryComment accepts comments that are live nowhere or hold ordinary markup.
func ordinaryComment(comment string) bool {
	if !isConditional(comment) || !hasTag(comment) {
		return true
	}
	if strings.Contains(comment, "<!--") {
		return false
	}
	inner := ordinaryReader{text: comment, inComment: true}
	return inner.read()
}

func (r *ordinaryReader) startTag() bool {
	tag := r.name()
	if !ordinaryElement(tag) {
		return false
	}
	if !isVoid(tag) {
		r.open++
	}
	if tag == "table" {
		r.open += 2
	}
	for r.space() && r.text != "" && r.text[0] != '/' && r.text[0] != '>' {
		if !r.attribute(tag) {
			return false
		}
	}
	raw := tag == "style" || tag == "title"
	if !raw && strings.HasPrefix(r.text, "/") {
		r.text = r.text[1:]
	}
	if !r.take('>') {
		return false
	}
	return !raw || r.rawText(tag)
}

// ordinaryElement refuses to read elements that change how the rest is read.
func ordinaryElement(tag string) bool {
	switch tag {
	case "", "iframe", "math", "noembed", "noframes", "noscript", "plaintext", "svg", "template", "textarea", "xmp":
		return false
	}
	return localName(tag) != "script"
}

// attribute accepts name, name="value", name='value' and name=value.
func (r *ordinaryReader) attribute(tag string) bool {
	name := r.name()
	if name == "" {
		return false
	}
	value := ""
	if r.take('=') {
		var ok bool
		if value, ok = r.value(); !ok {
			return false
		}
	}
	return r.atBoundary() && ordinaryAttribute(tag, name, value)
}

func (r *ordinaryReader) value() (value string, ok bool) {
	if r.text == "" {
		return "", false
	}
	if quote := r.text[0]; quote == '"' || quote == '\'' {
		end := strings.IndexByte(r.text[1:], quote)
		if end < 0 {
			return "", false
		}
		value = r.text[1 : 1+end]
		r.text = r.text[end+2:]
		return value, true
	}
	n := 0
	for n < len(r.text) && (isNameByte(r.text[n]) || strings.IndexByte("ABCDEF#%.", r.text[n]) >= 0) {
		n++
	}
	value = r.text[:n]
	r.text = r.text[n:]
	// A slash would be part of the value.
	return value, n > 0 && !strings.HasPrefix(r.text, "/")
}

// ordinaryAttribute applies the rules to a value that is not decoded yet.
func ordinaryAttribute(tag, name, value string) bool {
	if name == "http-equiv" {
		return strings.EqualFold(value, "Content-Type") || strings.EqualFold(value, "X-UA-Compatible")
	}
	role := roleOf(tag, localName(name))
	if role == roleDocument {
		return false
	}
	if role != rolePlain {
		// A character reference may decode to anything, but changes nothing behind a
		// scheme that is allowed whatever follows: query strings are full of them. A
		// value so short cannot hold enough of them to count as obscured either.
		if strings.IndexByte(value, '&') >= 0 {
			settled := role == roleURL && len(value) <= maxDropped && hasOrdinaryScheme(value)
			if !settled {
				return false
			}
		}
	}
	return attribute(tag, name, value) == nil
}

// hasOrdinaryScheme reports whether an address has one of the schemes of nearly all links.
func hasOrdinaryScheme(address string) bool {
	for _, scheme := range []string{"https:", "http:", "mailto:", "tel:", "sms:", "whatsapp:", "cid:"} {
		if len(address) >= len(scheme) && strings.EqualFold(address[:len(scheme)], scheme) {
			return true
		}
	}
	return false
}

// rawText accepts the text of style and title up to the end tag.
func (r *ordinaryReader) rawText(tag string) bool {
	text := r.text
	for at := 0; ; {
		i := strings.Index(text[at:], "</")
		if i < 0 {
			return false
		}
		at += i
		r.text = text[at+len("</"):]
		if len(r.text) > len(tag) && strings.EqualFold(r.text[:len(tag)], tag) {
			r.text = r.text[len(tag):]
			if !r.atBoundary() {
				return false
			}
			r.space()
			return r.take('>') && (tag != "style" || cssScript(text[:at]).rule == "")
		}
		at += len("</")
	}
}

// name reads a name of lower-case letters, digits, "-", "_" and ":".
func (r *ordinaryReader) name() string {
	n := 0
	for n < len(r.text) && isNameByte(r.text[n]) {
		n++
	}
	name := r.text[:n]
	r.text = r.text[n:]
	return name
}

func isNameByte(c byte) bool {
	return 'a' <= c && c <= 'z' || '0' <= c && c <= '9' || c == '-' || c == '_' || c == ':'
}

// atBoundary reports whether a name or value ends here for every parser.
func (r *ordinaryReader) atBoundary() bool {
	return r.text != "" && strings.IndexByte(" \t\r\n\f/>", r.text[0]) >= 0
}

// space skips white space. It returns true, for use in a condition.
func (r *ordinaryReader) space() bool {
	n := 0
	for n < len(r.text) && strings.IndexByte(" \t\r\n\f", r.text[n]) >= 0 {
		n++
	}
	r.text = r.text[n:]
	return true
}

func (r *ordinaryReader) take(c byte) bool {
	if r.text == "" || r.text[0] != c {
		return false
	}
	r.text = r.text[1:]
	return true
}
