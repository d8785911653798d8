package htmlcheck

import (
	"strings"

	"golang.org/x/net/html"
)

// element applies every rule to one element. Names are lower case.
func (in *inspector) element(tag string, attrs []html.Attribute) *Violation {
	if localName(tag) == "script" {
		return finding{RuleScriptElement, "script elements are not sent"}.at(tag, "")
	}
	for _, a := range attrs {
		if v := in.attribute(tag, a.Key, a.Val); v != nil {
			return v
		}
	}
	if tag == "meta" {
		return metaScript(attrs)
	}
	return nil
}

func (in *inspector) attribute(tag, name, value string) *Violation {
	local := localName(name)
	if isHandler(name) || isHandler(local) {
		return finding{RuleEventHandler, "event handler attributes are not sent"}.at(tag, name)
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
	case roleDocument:
		if v := in.srcdoc(value); v != nil {
			return v.within(printable(tag) + "/" + printable(name))
		}
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

// animatedScript judges what an svg animation (or its ancestor in old Outlook,
// HTML+TIME) sets: a handler or markup would become live without being markup.
func animatedScript(value string) finding {
	name := localName(strings.ToLower(strings.TrimSpace(value)))
	if isHandler(name) || name == "innerhtml" || name == "outerhtml" {
		return finding{RuleAnimatedAttribute, "animations must not set handlers or markup"}
	}
	return finding{}
}

// metaScript judges the address of a refresh ("0; url='address'", where old
// clients take the last of several) and of a link header ("<address>").
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
func styleSheet(css string) *Violation {
	if f := cssScript(css); f.rule != "" {
		return f.at("style", "")
	}
	return nil
}
