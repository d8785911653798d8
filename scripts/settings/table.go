package settings

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// Begin and End enclose the table in CONFIGURATION.md.
const (
	Begin = "<!-- settings: made of the source by: go run ./scripts/cmd/settings -->\n"
	End   = "<!-- settings: end -->\n"
)

// Insert returns the text with the table between the marks.
func Insert(text, table string) (string, error) {
	before, rest, begun := strings.Cut(text, Begin)
	_, after, ended := strings.Cut(rest, End)
	if !begun || !ended {
		return "", errors.New("the marks of the table are missing")
	}
	return before + Begin + "\n" + table + "\n" + End + after, nil
}

// Table returns all settings in Markdown, by name. A variable with different descriptions in
// several programs has all of them.
func Table(all []Program) string {
	var out strings.Builder
	out.WriteString("| variable | read by | default | meaning |\n|---|---|---|---|\n")
	for _, name := range Names(all) {
		uses := usesOf(all, name)
		fmt.Fprintf(&out, "| `%s` | %s | %s | %s |\n", name, strings.Join(readers(all, name), ", "),
			strings.Join(each(uses, fallback), "; "), strings.Join(each(uses, meaning), " "))
	}
	return out.String()
}

// Names returns the names of all settings, sorted.
func Names(all []Program) []string {
	var names []string
	for _, p := range all {
		for _, s := range p.Settings {
			names = append(names, s.Name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

type use struct {
	program string
	setting Setting
}

func usesOf(all []Program, name string) []use {
	var found []use
	for _, p := range all {
		for _, s := range p.Settings {
			if s.Name == name {
				found = append(found, use{p.Name, s})
			}
		}
	}
	return found
}

func readers(all []Program, name string) []string {
	var found []string
	for _, u := range usesOf(all, name) {
		found = append(found, u.program)
	}
	if len(found) == len(all) {
		return []string{"all"}
	}
	return found
}

// each returns the result of say for the uses: once if it is the same for all, otherwise with the
// programs to which it applies.
func each(uses []use, say func(Setting) string) []string {
	var said []string
	heard := map[string][]string{}
	for _, u := range uses {
		words := say(u.setting)
		if len(heard[words]) == 0 {
			said = append(said, words)
		}
		heard[words] = append(heard[words], u.program)
	}
	if len(said) == 1 {
		return said
	}
	for i, words := range said {
		said[i] = fmt.Sprintf("*%s:* %s", strings.Join(heard[words], ", "), words)
	}
	return said
}

func fallback(s Setting) string {
	switch {
	case s.Required:
		return "**required**"
	case s.Default == "":
		return "–"
	}
	return "`" + s.Default + "`"
}

// literal matches text that must be formatted as code: URLs, which would become links, and paths.
var literal = regexp.MustCompile(`[a-z0-9-]+://[^\s,;)]*(?:,[^\s,;)]+)*|(^|\s)/[a-z0-9/-]+|\b[A-Z][A-Z0-9]*(_[A-Z0-9]+)+\b`)

func meaning(s Setting) string {
	text := literal.ReplaceAllStringFunc(s.Meaning, func(word string) string {
		kept := strings.TrimRight(strings.TrimLeft(word, " "), ".:")
		return strings.Replace(word, kept, "`"+kept+"`", 1)
	})
	return strings.ReplaceAll(text, "|", `\|`)
}
