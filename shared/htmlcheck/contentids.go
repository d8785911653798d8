package htmlcheck

import (
	"net/url"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/net/html"
)

// mentionsContentID reports whether a body may refer to an attachment: the colon behind the scheme may be a character
// reference, its letters usually are not. Most bodies do not, and a regular expression took a seventh of the api's CPU time
// to find that out.
func mentionsContentID(body string) bool {
	for _, end := range []string{":", "&"} {
		for rest := body; ; {
			before, after, found := strings.Cut(rest, end)
			if !found {
				break
			}
			if n := len(before) - len("cid"); n >= 0 && strings.EqualFold(before[n:], "cid") {
				return true
			}
			rest = after
		}
	}
	return false
}

// contentAddress matches the addresses of attachments in a list of addresses or a style sheet: at the beginning, after a
// separator, and in url().
var contentAddress = regexp.MustCompile(`(?i)(?:^|[\s,(;'"])cid:([^\s"'(),;<>]+)`)

// attachmentAddress is contentAddress for an attribute with one address. In the query of a link, cid: refers to nothing.
var attachmentAddress = regexp.MustCompile(`(?i)^cid:([^\s"'(),;<>]+)`)

// addressAttributes have one address.
var addressAttributes = []string{"href", "src", "background", "poster", "data", "cite", "longdesc", "action", "formaction", "xlink:href"}

// listAttributes have a list of addresses or a style. In every other attribute, also those that scripts read, an address
// refers to nothing.
var listAttributes = []string{"srcset", "archive", "style"}

// ContentIDs returns the content ids of the attachments that a body refers to by cid: addresses, each once, in order. A
// comma, a semicolon, a quote and a parenthesis end an id. Addresses of link elements are ignored: Word refers to files that it
// does not attach, such as cid:filelist.xml, and no client shows them.
func ContentIDs(body string) []string {
	if !mentionsContentID(body) {
		return nil
	}
	var ids []string
	seen := make(map[string]bool)
	add := func(text string, addresses *regexp.Regexp) {
		for _, found := range addresses.FindAllStringSubmatch(text, -1) {
			id := found[1]
			if plain, err := url.PathUnescape(id); err == nil {
				id = plain
			}
			if !seen[id] {
				seen[id] = true
				ids = append(ids, id)
			}
		}
	}
	tokens, inStyle := html.NewTokenizer(strings.NewReader(body)), false
	for {
		switch tokens.Next() {
		case html.ErrorToken:
			return ids
		case html.StartTagToken, html.SelfClosingTagToken:
			name, more := tokens.TagName()
			inStyle = string(name) == "style"
			for more && string(name) != "link" {
				var key, value []byte
				key, value, more = tokens.TagAttr()
				switch name := string(key); {
				case slices.Contains(addressAttributes, name):
					add(strings.TrimSpace(string(value)), attachmentAddress)
				case slices.Contains(listAttributes, name):
					add(strings.TrimSpace(string(value)), contentAddress)
				}
			}
		case html.EndTagToken:
			inStyle = false
		case html.TextToken:
			if inStyle {
				add(string(tokens.Raw()), contentAddress)
			}
		}
	}
}
