package mailmerge

import (
	"strings"

	"golang.org/x/net/html"
)

// markup places the fields of an HTML document, token by token.
type markup struct {
	*source
	places []place // of the positions so far
	// container identifies the text or attribute being read: 0 is text of elements.
	container int
}

// placeInMarkup finds the place of every field.
//
// The tokens are those of the document with a probe in place of each value. All
// clients must agree on them up to the last field; where they might not (see
// selfContained), the template is refused.
func placeInMarkup(src *source) ([]place, *Fault) {
	m := &markup{source: src}
	if len(src.positions) == 0 {
		return nil, nil
	}
	if fault := m.sections(); fault != nil {
		return nil, fault
	}
	z := html.NewTokenizer(strings.NewReader(src.doc))
	end := 0
	raw, opened := "", "" // the start tag just read, and whether its content is no markup
	for !m.done() {
		kind := z.Next()
		start := end
		end += len(z.Raw())
		content, before := raw, opened
		raw, opened = "", ""
		var fault *Fault
		switch kind {
		case html.TextToken:
			fault = m.text(start, end, content, before)
		case html.StartTagToken, html.SelfClosingTagToken:
			opened, fault = m.startTag(z, start, end)
			if isRaw(opened) {
				raw = opened
			}
		case html.EndTagToken:
			fault = m.refuse(end, CodeInTag, "a field is not allowed in an end tag")
		case html.CommentToken:
			fault = m.comment(start, end)
		case html.DoctypeToken:
			fault = m.refuse(end, CodeInDoctype, "a field is not allowed in the document type")
		case html.ErrorToken:
			return nil, m.fault(m.next().at, CodeInTag, "the field is in a tag that is not closed")
		}
		if fault != nil {
			return nil, fault
		}
	}
	return m.places, nil
}

// put places the next position.
func (m *markup) put(p place) {
	m.positions[len(m.places)].container = m.container
	m.places = append(m.places, p)
}

// next is the first position not yet placed.
func (m *markup) next() valuePosition { return m.positions[len(m.places)] }

func (m *markup) done() bool { return len(m.places) == len(m.positions) }

// holds reports whether the next position lies before end.
func (m *markup) holds(end int) bool { return !m.done() && m.next().at < end }

// refuse is a fault at the next position if it lies before end.
func (m *markup) refuse(end int, code, detail string) *Fault {
	if !m.holds(end) {
		return nil
	}
	return m.fault(m.next().at, code, detail)
}

// text places the fields of a text. content is the enclosing element if its content is not markup;
// before is the start tag right before it.
func (m *markup) text(start, end int, content, before string) *Fault {
	if content != "" {
		return m.rawText(start, end, content)
	}
	for m.holds(end) {
		if fault := m.reference(start); fault != nil {
			return fault
		}
		p := placeMarkup
		if m.next().at == start && (before == "pre" || before == "listing") {
			if m.next().kind != Variable {
				return m.fault(start, CodeSectionPlace, "a section must not begin or end directly after <"+before+">: put a line break between them")
			}
			p = placePreformed
		}
		m.put(p)
	}
	return nil
}

func (m *markup) rawText(start, end int, element string) *Fault {
	markedUp := strings.IndexByte(m.doc[start:end], '<') >= 0
	switch {
	case !m.holds(end):
		if markedUp && !selfContained(m.doc[start:end]) {
			return m.ambiguous(start, "the content of "+element+" has markup that clients parse differently: close its tags and quotes")
		}
		return nil
	case element == "title" && !markedUp:
		m.container = start + 1
		fault := m.text(start, end, "", "")
		m.container = 0
		return fault
	case element == "title":
		return m.refuse(end, CodeInRawText, "a title with a field must not contain <; write &lt; for a literal <")
	case element == "script":
		return m.refuse(end, CodeInScript, "a field is not allowed in a script")
	case element == "style":
		return m.refuse(end, CodeInStyle, "a field is not allowed in a style sheet")
	}
	return m.refuse(end, CodeInRawText, "a field is not allowed in "+element)
}

// reference rejects a field right after an unfinished character reference, which the value would
// complete: &{{x}}, &#{{x}}, &not{{x}}.
func (m *markup) reference(start int) *Fault {
	at := m.next().at
	if n := len(m.places); n > 0 {
		start = max(start, m.positions[n-1].at+1)
	}
	i := at
	for i > start && (isAlphanumeric(m.doc[i-1]) || m.doc[i-1] == '#') {
		i--
	}
	if i > start && m.doc[i-1] == '&' {
		return m.fault(at, CodeAfterReference, "a field is not allowed directly after &; write &amp; for a literal &")
	}
	return nil
}

func (m *markup) comment(start, end int) *Fault {
	if m.holds(end) {
		return m.refuse(end, CodeInComment, "a field is not allowed in a comment or declaration")
	}
	if !commentSelfContained(m.doc[start:end]) {
		return m.ambiguous(start, "a conditional comment must contain only complete tags, because Outlook reads them")
	}
	return nil
}

// sections rejects CDATA together with svg and math: only inside of them it hides markup up to
// "]]>" instead of up to ">".
func (m *markup) sections() *Fault {
	i := strings.Index(m.doc, "<![CDATA[")
	if i < 0 {
		return nil
	}
	lower := strings.ToLower(m.doc)
	if !strings.Contains(lower, "<svg") && !strings.Contains(lower, "<math") {
		return nil
	}
	return m.ambiguous(i, "CDATA sections are not allowed together with svg or math in a template with fields")
}

func (m *markup) ambiguous(at int, detail string) *Fault {
	return m.fault(at, CodeAmbiguous, detail)
}
