package statementtest

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/lib/pq/oid"

	"email-gateway/shared/store/internal/pg"
)

var (
	// rowsPlace stands for the rows with all their columns, or with those in parentheses, perhaps with their number n.
	rowsPlace = regexp.MustCompile(`\$rows\b(?:\(([a-z0-9_, ]+)\))?( WITH ORDINALITY)?`)
	// namePlace stands for one parameter, perhaps with a cast.
	namePlace = regexp.MustCompile(`\$([a-z][a-z0-9_]*)((?:::[a-z]+(?:\[\])?)*)`)
)

// arrayTypes are the types of arrays, by the type of their elements.
var arrayTypes = map[oid.Oid]string{
	oid.T_uuid: "uuid[]", oid.T_text: "text[]", oid.T_bytea: "bytea[]", oid.T_jsonb: "jsonb[]", oid.T_int8: "bigint[]",
	oid.T_bool: "bool[]", oid.T_timestamptz: "timestamptz[]",
}

// generate writes numbers in the place of names, and a header: what the statement does, from the template's first comment;
// its parameters; and what explains it.
func generate(f File, parameters []pg.Parameter, text string) (string, error) {
	numbers, used := map[string]int{}, map[string]bool{}
	for i, p := range parameters {
		if numbers[p.Name] != 0 {
			return "", fmt.Errorf("two parameters have the name %s", p.Name)
		}
		numbers[p.Name] = i + 1
		if encoded := arrayTypes[p.Element]; p.Element != 0 && encoded != p.Type {
			return "", fmt.Errorf("%s is described as %s, but its values are encoded as %s", p.Name, p.Type, encoded)
		}
	}
	var unknown []string
	number := func(name string) int {
		used[name] = true
		if numbers[name] == 0 {
			unknown = append(unknown, name)
		}
		return numbers[name]
	}
	comment, statement := cutComment(strings.TrimSpace(text) + "\n")
	var body strings.Builder
	for line := range strings.Lines(statement) {
		indent := line[:len(line)-len(strings.TrimLeft(line, " "))]
		line = rowsPlace.ReplaceAllStringFunc(line, func(place string) string {
			var names []string
			match := rowsPlace.FindStringSubmatch(place)
			if match[1] != "" {
				names = strings.Split(match[1], ", ")
			} else {
				for _, p := range parameters {
					if p.Element != 0 {
						names = append(names, p.Name)
					}
				}
			}
			return unnest(parameters, names, match[2] != "", indent, number)
		})
		body.WriteString(namePlace.ReplaceAllStringFunc(line, func(place string) string {
			parts := namePlace.FindStringSubmatch(place)
			return fmt.Sprintf("$%d%s /* %s */", number(parts[1]), parts[2], parts[1])
		}))
	}
	for _, p := range parameters {
		if !used[p.Name] {
			return "", fmt.Errorf("the statement does not use %s", p.Name)
		}
	}
	if len(unknown) > 0 {
		return "", fmt.Errorf("%q are not described", unknown)
	}
	return fmt.Sprintf("-- Generated from %s and Go's description of the parameters by go generate: do not edit.\n--\n%s--\n%s%s", f.Template, comment, header(f.Name, parameters), body.String()), nil
}

// cutComment splits off the lines of comment with which a text begins.
func cutComment(text string) (comment, rest string) {
	rest = text
	for strings.HasPrefix(rest, "--") {
		line, after, _ := strings.Cut(rest, "\n")
		comment, rest = comment+line+"\n", after
	}
	return comment, rest
}

// unnest makes rows of the arrays, with the number of each row as n if numbered. More than four are written one to a line.
func unnest(parameters []pg.Parameter, names []string, numbered bool, indent string, number func(string) int) string {
	arrays := make([]string, len(names))
	width := 0
	for i, name := range names {
		if n := number(name); n > 0 {
			arrays[i] = fmt.Sprintf("$%d::%s", n, parameters[n-1].Type)
		}
		if i < len(names)-1 {
			arrays[i] += ","
		}
		width = max(width, len(arrays[i]))
	}
	alias := ") AS t(" + strings.Join(names, ", ") + ")"
	if numbered {
		alias = ") WITH ORDINALITY AS t(" + strings.Join(names, ", ") + ", n)"
	}
	if len(names) <= 4 {
		return "unnest(" + strings.Join(arrays, " ") + alias
	}
	var b strings.Builder
	b.WriteString("unnest(\n")
	for i, array := range arrays {
		fmt.Fprintf(&b, "%s    %-*s -- %s\n", indent, width, array, names[i])
	}
	b.WriteString(indent + wrapAt(alias, 100, indent+strings.Repeat(" ", len(") AS t("))))
	return b.String()
}

// wrapAt breaks a text at spaces, before its lines are wider than so many characters.
func wrapAt(text string, width int, indent string) string {
	var lines []string
	line := ""
	for _, word := range strings.Fields(text) {
		if line != "" && len(line)+1+len(word) > width {
			lines = append(lines, line)
			line = ""
		}
		line = strings.TrimPrefix(line+" "+word, " ")
	}
	return strings.Join(append(lines, line), "\n"+indent)
}

// header lists the parameters, and what explains the statement once it is prepared.
func header(name string, parameters []pg.Parameter) string {
	var b strings.Builder
	var samples []string
	first := slices.IndexFunc(parameters, func(p pg.Parameter) bool { return p.Element != 0 })
	fmt.Fprintf(&b, "-- Parameters; from $%d on, each array has one element per row:\n", first+1)
	for i, p := range parameters {
		fmt.Fprintf(&b, "--   %-4s %-20s %s\n", fmt.Sprintf("$%d", i+1), p.Name, p.Type)
		samples = append(samples, sample(p.Type))
	}
	fmt.Fprintf(&b, "--\n-- EXPLAIN EXECUTE %s (%s);\n", name, strings.Join(samples, ", "))
	return b.String()
}

// sample is a value of a type with which a statement can be explained.
func sample(kind string) string {
	switch kind {
	case "uuid":
		return "'00000000-0000-0000-0000-000000000000'"
	case "bool":
		return "false"
	case "timestamptz":
		return "now()"
	case "text":
		return "'0'"
	case "bytea", "jsonb":
		return "'{}'"
	}
	if strings.HasSuffix(kind, "[]") {
		return "'{}'"
	}
	return "0"
}
