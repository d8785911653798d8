package htmlcheck

// role is what a client does with an attribute's value.
type role int

const (
	rolePlain    role = iota // shows it or ignores it
	roleURL                  // may follow it
	roleURLList              // may follow each of several
	roleCSS                  // applies it
	roleAnimated             // animates the attribute it names
	roleDocument             // shows it as a document of its own
)

// roleOf names the role of an attribute, given without namespace. Attributes
// count on any element, since clients disagree on where they work; value is the
// exception, because most values are text a form shows.
func roleOf(tag, name string) role {
	switch name {
	case "action", "althref", "altimg", "background", "base", "by", "cite", "classid", "code", "codebase", "data",
		"dynsrc", "folder", "formaction", "from", "href", "icon", "implementation", "longdesc",
		"loopsrc", "lowsrc", "manifest", "pluginspage", "pluginurl", "poster", "profile", "src", "to", "url", "usemap":
		return roleURL
	case "archive", "attributionsrc", "imagesrcset", "ping", "srcset", "values":
		return roleURLList
	case "style", "clip-path", "cursor", "fill", "filter", "marker", "marker-end", "marker-mid",
		"marker-start", "mask", "stroke":
		return roleCSS
	case "attributename":
		return roleAnimated
	case "srcdoc":
		return roleDocument
	case "value":
		if tag == "param" {
			return roleURL
		}
	}
	return rolePlain
}
