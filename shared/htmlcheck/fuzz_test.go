package htmlcheck_test

import (
	"errors"
	"strings"
	"testing"

	"golang.org/x/net/html"

	"email-gateway/shared/htmlcheck"
)

// FuzzCheck compares the result of Check, which leaves out what it can, to that
// of every reading made.
func FuzzCheck(f *testing.F) {
	for _, dir := range []string{"refused", "accepted"} {
		for _, body := range files(f, dir) {
			f.Add(body)
		}
	}
	f.Fuzz(func(t *testing.T, body string) {
		got, want := htmlcheck.Check(body), htmlcheck.CheckThoroughly(body)
		if rule(got) != rule(want) {
			t.Errorf("Check = %v, CheckThoroughly = %v", got, want)
		}
		all := htmlcheck.CheckAll(body, 20)
		if (got == nil) != (len(all) == 0) || got != nil && rule(all[0]) != rule(got) || len(all) > 20 {
			t.Errorf("Check = %v, CheckAll = %v", got, all)
		}
		if got != nil && rule(got) == "" {
			t.Errorf("Check = %v, want a violation", got)
		}
		if got == nil {
			if live := liveScript(body); live != "" {
				t.Errorf("Check = nil, but the parsed body has %s", live)
			}
		}
	})
}

func rule(err error) string {
	var v *htmlcheck.Violation
	if errors.As(err, &v) {
		return v.Rule
	}
	return ""
}

// liveScript looks for the plainest script in a body as a mail client's tree
// shows it. It shares no code with the package.
func liveScript(body string) string {
	root, err := html.ParseWithOptions(strings.NewReader(body), html.ParseOptionEnableScripting(false))
	if err != nil {
		return ""
	}
	for node := range root.Descendants() {
		if node.Type != html.ElementNode {
			continue
		}
		if node.Data == "script" && !isInert(node) {
			return "a script"
		}
		for _, a := range node.Attr {
			if strings.HasPrefix(a.Key, "onclick") || strings.HasPrefix(a.Key, "onerror") || strings.HasPrefix(a.Key, "onload") {
				return a.Key
			}
			for _, scheme := range []string{"javascript:", "file:", `\\`} {
				address := strings.ToLower(strings.TrimSpace(a.Val))
				if (a.Key == "href" || a.Key == "src") && strings.HasPrefix(address, scheme) && strings.TrimLeft(address, `/\"'`) != "" && !strings.ContainsAny(address, `"'`) {
					return a.Val
				}
			}
		}
	}
	return ""
}

// isInert: browsers take a script element of a type that they do not know for data.
func isInert(node *html.Node) bool {
	kind := ""
	for _, a := range node.Attr {
		switch a.Key {
		case "src":
			return false
		case "type":
			kind = a.Val
		}
	}
	return node.Namespace == "" && strings.EqualFold(strings.TrimSpace(kind), "application/ld+json")
}
