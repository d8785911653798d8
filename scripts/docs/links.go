package docs

import (
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"unicode"
)

var (
	link   = regexp.MustCompile(`\]\(([^()\s]+)\)`)
	code   = regexp.MustCompile("`[^`]*`")
	labels = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)
)

// Files returns the Markdown files of the checkout below root, as relative paths.
func Files(root string) ([]string, error) {
	var found []string
	err := filepath.WalkDir(root, func(path string, entry os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() && path != root && strings.HasPrefix(entry.Name(), ".") {
			return filepath.SkipDir
		}
		if filepath.Ext(path) == ".md" {
			from, err := filepath.Rel(root, path)
			found = append(found, from)
			return err
		}
		return nil
	})
	return found, err
}

// BrokenLinks returns the links of a file below root to missing files or headings. It does not
// follow links to other hosts.
func BrokenLinks(root, file string) ([]string, error) {
	text, err := os.ReadFile(filepath.Join(root, file))
	if err != nil {
		return nil, err
	}
	var broken []string
	for i, line := range outsideFences(string(text)) {
		for _, found := range link.FindAllStringSubmatch(code.ReplaceAllStringFunc(line, blank), -1) {
			to, err := url.Parse(found[1])
			if err == nil && to.IsAbs() {
				continue
			}
			if err == nil {
				err = leads(root, file, to)
			}
			if err != nil {
				broken = append(broken, fmt.Sprintf("%s:%d: %s: %v", file, i+1, found[1], err))
			}
		}
	}
	return broken, nil
}

// blank keeps a link whose label is code: it replaces only the text within the backquotes.
func blank(code string) string { return strings.Repeat("x", len(code)) }

func leads(root, from string, to *url.URL) error {
	path := filepath.Join(root, from)
	if to.Path != "" {
		path = filepath.Join(root, filepath.Dir(from), filepath.FromSlash(to.Path))
	}
	inside, err := filepath.Rel(root, path)
	if err != nil || strings.HasPrefix(inside, "..") {
		return fmt.Errorf("leads out of the checkout")
	}
	info, err := os.Stat(path)
	if err != nil {
		return fmt.Errorf("there is no such file")
	}
	if to.Fragment == "" || filepath.Ext(path) != ".md" {
		return nil
	}
	if info.IsDir() {
		return fmt.Errorf("a folder has no headings")
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if !slices.Contains(Anchors(string(text)), to.Fragment) {
		return fmt.Errorf("%s has no such heading", inside)
	}
	return nil
}

// Anchors returns the anchors of a page's headings, as GitHub generates them.
func Anchors(markdown string) []string {
	var all []string
	times := map[string]int{}
	for _, line := range outsideFences(markdown) {
		found := heading.FindStringSubmatch(line)
		if found == nil {
			continue
		}
		name := strings.Map(func(r rune) rune {
			switch {
			case r == ' ':
				return '-'
			case r == '-' || r == '_' || unicode.IsLetter(r) || unicode.IsNumber(r):
				return unicode.ToLower(r)
			}
			return -1
		}, labels.ReplaceAllString(found[1], "$1"))
		if n := times[name]; n > 0 {
			all = append(all, fmt.Sprintf("%s-%d", name, n))
		} else {
			all = append(all, name)
		}
		times[name]++
	}
	return all
}

// outsideFences returns the lines of a page, with fenced blocks replaced by empty lines.
func outsideFences(markdown string) []string {
	lines := strings.Split(markdown, "\n")
	closing := ""
	for i, line := range lines {
		opening := fence.FindStringSubmatch(line)
		switch {
		case closing != "":
			if strings.TrimSpace(line) == closing {
				closing = ""
			}
			lines[i] = ""
		case opening != nil:
			closing = opening[1]
			lines[i] = ""
		}
	}
	return lines
}
