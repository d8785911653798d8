package mailmerge

import "strings"

// role is what a client does with an attribute's value.
type role int

const (
	rolePlain     role = iota // shows it or ignores it
	roleAddress               // may follow it
	roleAddresses             // may follow each of several
)

// roleOf returns the role of an attribute or why no field is allowed in it. The lists are those of
// htmlcheck, which checks the same attributes, plus those that determine what the element does.
func roleOf(t *tag, name string) (role, *Fault) {
	switch localName(t.name) {
	case "script":
		return 0, &Fault{Code: CodeInScript, Detail: "a field is not allowed in a script element"}
	case "style":
		return 0, &Fault{Code: CodeInStyle, Detail: "a field is not allowed in a style element"}
	}
	local := localName(name)
	switch {
	case strings.HasPrefix(name, "on"), strings.HasPrefix(local, "on"):
		return 0, &Fault{Code: CodeInHandler, Detail: "a field is not allowed in an event handler"}
	case strings.HasPrefix(name, "xmlns"):
		return 0, changesBehaviour(name)
	}
	switch local {
	case "srcdoc":
		return 0, &Fault{Code: CodeInSrcdoc, Detail: "a field is not allowed in srcdoc"}
	case "style", "clip-path", "cursor", "fill", "filter", "marker", "marker-end", "marker-mid", "marker-start", "mask", "stroke":
		return 0, &Fault{Code: CodeInStyle, Detail: "a field is not allowed in " + name + ", whose value is CSS"}
	case "action", "althref", "altimg", "background", "base", "by", "cite", "classid", "code", "codebase", "data",
		"dynsrc", "folder", "formaction", "from", "href", "icon", "implementation", "longdesc",
		"loopsrc", "lowsrc", "manifest", "pluginspage", "pluginurl", "poster", "profile", "src", "to", "url", "usemap":
		return roleAddress, nil
	case "archive", "attributionsrc", "imagesrcset", "ping", "srcset", "values":
		return roleAddresses, nil
	case "attributename", "attributetype", "charset", "enctype", "formenctype", "formmethod", "http-equiv", "language",
		"method", "rel", "rev", "sandbox", "type":
		return 0, changesBehaviour(name)
	case "value":
		if t.name == "param" {
			return roleAddress, nil
		}
	}
	// A meta element with http-equiv is a header: a refresh has an address in it.
	if t.name == "meta" && (local != "content" || t.has("http-equiv")) {
		return 0, &Fault{Code: CodeInAttribute, Detail: "in a meta element a field is allowed only in content, and not together with http-equiv"}
	}
	return rolePlain, nil
}

func changesBehaviour(name string) *Fault {
	return &Fault{Code: CodeInAttribute, Detail: "a field is not allowed in " + name + ", which determines what the element does"}
}

// localName cuts a namespace prefix: xlink:href is href.
func localName(name string) string {
	return name[strings.LastIndexByte(name, ':')+1:]
}
