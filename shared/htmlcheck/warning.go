package htmlcheck

import "golang.org/x/net/html"

// Warnings lists markup that may be sent but that clients strip, block or
// distrust: frames, forms, objects, base and refreshing meta elements. It names
// each kind once, at its first place, and says nothing of a body that Check
// refuses for its size or encoding.
func Warnings(markup string) []Violation {
	if checkText(markup) != nil {
		return nil
	}
	var warnings []Violation
	seen := make(map[string]bool)
	tokens := tokenReading{visit: func(tag string, attrs []html.Attribute) *Violation {
		if f := doubtful(tag, attrs); f.rule != "" && !seen[f.rule] {
			seen[f.rule] = true
			warnings = append(warnings, *f.at(tag, ""))
		}
		return nil
	}}
	_ = tokens.read(markup) // visit refuses nothing; what else it finds is Check's to say
	return warnings
}

// doubtful names what is doubtful about an element.
func doubtful(tag string, attrs []html.Attribute) finding {
	switch tag {
	case "iframe", "frame", "frameset":
		return finding{WarnFrame, "mail clients do not show frames"}
	case "form":
		return finding{WarnForm, "many mail clients disable forms or warn of them"}
	case "object", "embed", "applet":
		return finding{WarnObject, "mail clients do not run embedded objects"}
	case "base":
		return finding{WarnBase, "mail clients ignore base, which leaves relative addresses broken"}
	case "meta":
		if equiv, _ := metaHeader(attrs); equiv == "refresh" {
			return finding{WarnMetaRefresh, "mail clients ignore refresh, and spam filters distrust it"}
		}
	}
	return finding{}
}
