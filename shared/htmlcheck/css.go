package htmlcheck

import (
	"slices"
	"sort"
	"strings"
	"unicode/utf8"
)

// cssScript finds script in a style sheet or a style attribute.
//
// It looks for the few words that matter at every place, and reads past escapes
// and comments inside a word, but does not skip comments as such: what one
// client takes for a comment can be a string or an address to another, and a
// made-up comment would hide what follows. So a real comment that contains
// url(javascript:…) is refused too.
func cssScript(css string) (first finding) {
	eachCSSScript(css, func(f finding) (stop bool) {
		first = f
		return true
	})
	return first
}

// eachCSSScript yields one finding per rule.
func eachCSSScript(css string, found func(finding) (stop bool)) (stop bool) {
	s := cssScanner{text: css}
	var rules []string
	for i := range len(css) {
		if !mayBegin(css[i:]) {
			continue
		}
		f := s.at(i)
		if f.rule == "" || slices.Contains(rules, f.rule) {
			continue
		}
		if found(f) {
			return true
		}
		rules = append(rules, f.rule)
	}
	return false
}

// mayBegin rules out most places by two bytes. A word may continue with an escape,
// a comment or a letter that only looks like ASCII.
func mayBegin(text string) bool {
	var second byte
	switch text[0] {
	case ';', '}', '\\', '"', '\'', '=', '(', fullwidthLead:
		return true
	case 'e', 'E':
		second = 'x'
	case 'u', 'U':
		second = 'r'
	case 'b', 'B':
		second = 'e'
	case 'i', 'I':
		second = 'm'
	case 'a', 'A':
		second = 'l'
	case '@':
		second = 'i'
	case '-':
		second = 'm' // or o, below
	default:
		return false
	}
	if len(text) < 2 {
		return false
	}
	next := text[1]
	return next|0x20 == second || second == 'm' && next|0x20 == 'o' ||
		next == '\\' || next == '/' || next >= utf8.RuneSelf
}

// cssScanner is the state of one scan.
type cssScanner struct {
	text     string
	closings []int // offsets of "*/"; filled when a word contains a comment
	counted  bool  // closings is filled
	behavior bool  // inside the declaration of a behavior
	images   bool  // inside a rule with addresses without url()
	obscured bool  // a word was broken up beyond maxSkips
}

var (
	foundExpression = finding{RuleCSSExpression, "CSS expressions run script and are not allowed"}
	foundBinding    = finding{RuleCSSBinding, "CSS bindings, behaviors and links run script and are not allowed"}
)

// at checks what begins at i.
func (s *cssScanner) at(i int) finding {
	if c := s.text[i]; c == ';' || c == '}' {
		s.behavior = false
		s.images = s.images && c == ';' // a data: address may contain one
		return finding{}
	}
	var f finding
	switch first, _ := s.char(i); first {
	case 'e':
		f = s.expression(i)
	case 'u':
		f = s.url(i)
	case '@':
		f = s.importRule(i)
	case 'b':
		s.behavior = s.behavior || s.startsBehavior(i)
	case '-':
		f = s.binding(i)
	case 'i', 'a':
		s.images = s.images || s.startsImages(i)
	case '"', '\'', '=', '(':
		if s.images {
			f = s.checkURL(i + 1)
		}
	}
	if s.obscured {
		return foundObscured
	}
	return f
}

func (s *cssScanner) expression(i int) finding {
	if end, ok := s.word(i, "expression"); ok && s.opensParenthesis(end) {
		return foundExpression
	}
	return finding{}
}

func (s *cssScanner) binding(i int) finding {
	for _, name := range []string{"-moz-binding", "-o-link"} {
		if _, ok := s.word(i, name); ok {
			return foundBinding
		}
	}
	return finding{}
}

func (s *cssScanner) url(i int) finding {
	end, ok := s.word(i, "url")
	if !ok || !s.opensParenthesis(end) {
		return finding{}
	}
	_, inside := s.char(s.skip(end, true))
	// Outlook's own behaviors have fragments for names: url(#default#VML).
	var buf [maxPrefix]byte
	if s.behavior && !strings.HasPrefix(string(s.address(buf[:0], inside)), "#") {
		return foundBinding
	}
	return s.checkURL(inside)
}

// checkURL checks the address at i, with escapes resolved and also unresolved, because Outlook leaves
// backslashes unchanged.
func (s *cssScanner) checkURL(i int) finding {
	var buf [maxPrefix]byte
	if f := checkURLPrefix(s.address(buf[:0], i)); f.rule != "" {
		return f
	}
	written := s.text[i:min(len(s.text), i+maxPrefix)]
	if isShare([]byte(strings.TrimLeft(written, " \t\r\n\f\"'"))) {
		return foundLocal
	}
	return finding{}
}

// startsImages reports whether image-set( or AlphaImageLoader( begins at i: their
// addresses are quoted without url(, those of image-set several in a row.
func (s *cssScanner) startsImages(i int) bool {
	for _, name := range []string{"image-set", "alphaimageloader"} {
		if end, ok := s.word(i, name); ok && s.opensParenthesis(end) {
			return true
		}
	}
	return false
}

func (s *cssScanner) importRule(i int) finding {
	end, ok := s.word(i, "@import")
	if !ok {
		return finding{}
	}
	return s.checkURL(s.skip(end, true))
}

// startsBehavior reports whether the property behavior begins at i, as opposed
// to scroll-behavior. IE takes "_behavior" for it as well.
func (s *cssScanner) startsBehavior(i int) bool {
	if i > 0 {
		if before := s.text[i-1]; before == '-' || isLetter(before) {
			return false
		}
	}
	end, ok := s.word(i, "behavior")
	if !ok {
		return false
	}
	colon, _ := s.char(s.skip(end, true))
	return colon == ':'
}

func (s *cssScanner) opensParenthesis(i int) bool {
	c, _ := s.char(s.skip(i, true))
	return c == '('
}

// maxSkips is how many comments, white spaces and the like may be consecutive
// where a word continues. People write a few; without a bound, a scan that
// starts at every letter would be quadratic.
const maxSkips = 128

// word reports whether a lower-case word begins at i, and where it ends.
func (s *cssScanner) word(i int, word string) (end int, ok bool) {
	for j := range len(word) {
		if j > 0 {
			i = s.skip(i, false)
		}
		c, next := s.char(i)
		if c != rune(word[j]) {
			return 0, false
		}
		i = next
	}
	return i, true
}

// skip passes over comments and escaped line breaks, and over white space too
// if told so.
func (s *cssScanner) skip(i int, space bool) int {
	for range maxSkips {
		if strings.HasPrefix(s.text[i:], "/*") {
			i = s.commentEnd(i + 2)
			continue
		}
		c, next := s.char(i)
		if next == i || c > ' ' || c != nothing && !space {
			return i
		}
		i = next
	}
	s.obscured = true
	return i
}

// commentEnd returns where the comment whose text begins at i ends.
func (s *cssScanner) commentEnd(i int) int {
	if !s.counted {
		s.counted = true
		for at := 0; ; {
			k := strings.Index(s.text[at:], "*/")
			if k < 0 {
				break
			}
			s.closings = append(s.closings, at+k)
			at += k + 1
		}
	}
	k := sort.SearchInts(s.closings, i)
	if k == len(s.closings) {
		return len(s.text)
	}
	return s.closings[k] + 2
}

// address appends the beginning of the address at i, like urlPrefix, with
// escapes resolved and an opening quote skipped.
func (s *cssScanner) address(dst []byte, i int) []byte {
	for skips := 0; len(dst) < maxPrefix && i < len(s.text) && s.text[i] != ')'; {
		c, next := s.char(i)
		i = next
		switch {
		case c < ' ' || c == 0x7F || c >= utf8.RuneSelf && invisible(c),
			len(dst) == 0 && (c == ' ' || c == '"' || c == '\''):
			if skips++; skips > maxSkips {
				s.obscured = true
				return dst
			}
		default:
			dst = utf8.AppendRune(dst, c)
		}
	}
	return dst
}
