package htmlcheck

import (
	"strings"

	"golang.org/x/net/html"
)

// element applies every rule to one element. Names are lower case.
func (in *inspector) element(tag string, attrs []html.Attribute, found emit) (stop bool) {
	if localName(tag) == "script" && (tag != "script" || !isDataBlock(attrs)) {
		return found(scriptElement(tag))
	}
	for _, a := range attrs {
		if v := attribute(tag, a.Key, a.Val); v != nil {
			stop = found(v) || in.found.limit > 1 && otherRules(tag, a, v.Rule, found)
		} else if roleOf(tag, localName(a.Key)) == roleDocument {
			stop = in.inside(tag, a, found)
		}
		if stop {
			return true
		}
	}
	if tag == "meta" {
		if v := metaScript(attrs); v != nil {
			return found(v)
		}
	}
	return false
}

// inside checks the document in a srcdoc.
func (in *inspector) inside(tag string, a html.Attribute, found emit) (stop bool) {
	for _, v := range in.srcdoc(a.Val) {
		if found(v.within(printable(tag) + "/" + printable(a.Key))) {
			return true
		}
	}
	return false
}

// otherRules checks a style attribute after its first finding.
func otherRules(tag string, a html.Attribute, first string, found emit) (stop bool) {
	if first == RuleEventHandler || roleOf(tag, localName(a.Key)) != roleCSS {
		return false
	}
	return eachCSSScript(a.Val, func(f finding) bool { return f.rule != first && found(f.at(tag, a.Key)) })
}

// attribute checks an attribute, but not the document in a srcdoc.
func attribute(tag, name, value string) *Violation {
	local := localName(name)
	if isHandler(name) || isHandler(local) {
		return finding{RuleEventHandler, "event handler attributes are not allowed"}.at(tag, name)
	}
	if value == "" {
		return nil
	}
	var f finding
	switch roleOf(tag, local) {
	case roleURL:
		f = urlScript(value)
	case roleURLList:
		f = urlListScript(value)
	case roleCSS:
		f = cssScript(value)
	case roleAnimated:
		f = animatedScript(value)
	}
	if f.rule == "" {
		return nil
	}
	return f.at(tag, name)
}

// isHandler reports whether a name is that of an event handler, known or yet to
// be invented. Exactly "on" is none: VML writes <v:fill on="t">, AMP on="tap:…".
func isHandler(name string) bool {
	return len(name) > 2 && name[0] == 'o' && name[1] == 'n' && isLetter(name[2])
}

// localName cuts a namespace prefix, which the tokenizer leaves in names.
func localName(name string) string {
	return name[strings.LastIndexByte(name, ':')+1:]
}

// animatedScript checks the values that an svg animation (or its ancestor in old Outlook,
// HTML+TIME) sets: a handler or markup would become live without being markup.
func animatedScript(value string) finding {
	name := localName(strings.ToLower(strings.TrimSpace(value)))
	if isHandler(name) || name == "innerhtml" || name == "outerhtml" {
		return finding{RuleAnimatedAttribute, "animations must not set event handlers or markup"}
	}
	return finding{}
}

// metaScript checks the address of a refresh ("0; url='address'", where old clients use the last of
// several) and of a link header ("<address>").
func metaScript(attrs []html.Attribute) *Violation {
	equiv, content := metaHeader(attrs)
	if equiv != "refresh" && equiv != "link" {
		return nil
	}
	rest := strings.ToLower(content)
	for {
		rest = strings.TrimLeft(rest, " \t\r\n\f0123456789.;,=<'\"")
		if f := urlScript(rest); f.rule != "" {
			return f.at("meta", "content")
		}
		i := strings.Index(rest, "url")
		if i < 0 {
			return nil
		}
		rest = rest[i+len("url"):]
	}
}

// metaHeader returns http-equiv, lower case, and content.
func metaHeader(attrs []html.Attribute) (equiv, content string) {
	for _, a := range attrs {
		switch a.Key {
		case "http-equiv":
			equiv = strings.ToLower(strings.TrimSpace(a.Val))
		case "content":
			content = a.Val
		}
	}
	return equiv, content
}

// styleSheet checks the content of a style element.
func styleSheet(css string, found emit) (stop bool) {
	return eachCSSScript(css, func(f finding) bool { return found(f.at("style", "")) })
}
