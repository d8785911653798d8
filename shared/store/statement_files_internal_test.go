package store

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"text/template"

	"github.com/lib/pq/oid"

	"email-gateway/shared/store/breaker"
	"email-gateway/shared/store/internal/intake"
	"email-gateway/shared/store/internal/pg"
)

//go:generate go test -count=1 -run ^TestStatementFiles_AreGenerated$ . -update

var update = flag.Bool("update", false, "write the files that are generated")

// Parameter is a parameter of a statement.
type Parameter = pg.Parameter

// StatementFile is a grouped statement and its file in sql.
type StatementFile struct {
	Name       string // of the file, without .sql
	SQL        string // what runs
	Parameters []Parameter

	template string
	options  options
}

// options choose a variant of a template.
type options map[string]any

// StatementFiles are all of them.
var StatementFiles = []StatementFile{
	{Name: "accept", SQL: insertEmailsSQL, Parameters: acceptParameters.List(), template: "accept.sql.tmpl"},
	{Name: "accept_recipients", SQL: insertIntakesSQL, Parameters: intakeParameters.List(), template: "accept_recipients.sql.tmpl"},
	{Name: "accept_scheduled", SQL: insertScheduledSQL, Parameters: acceptParameters.List(), template: "accept.sql.tmpl", options: options{"Scheduled": true}},
	{Name: "advance", SQL: advanceSQL, Parameters: advanceParameters.List(), template: "advance.sql.tmpl", options: options{"SkipLocked": true}},
	{Name: "advance_plain", SQL: advancePlainSQL, Parameters: plainParameters.List(), template: "advance.sql.tmpl", options: options{"SkipLocked": true, "Plain": true}},
	{Name: "advance_waiting", SQL: advanceWaitingSQL, Parameters: advanceParameters.List(), template: "advance.sql.tmpl"},
	{Name: "expand", SQL: expandSQL, Parameters: expandParameters.List(), template: "expand.sql.tmpl"},
	{Name: "insert_doubtful_entries", SQL: insertDoubtfulSQL, Parameters: doubtfulParameters.List(), template: "insert_doubtful_entries.sql.tmpl"},
	{Name: "insert_rejects", SQL: insertRejectsSQL, Parameters: rejectsParameters.List(), template: "insert_rejects.sql.tmpl"},
	{Name: "known_people", SQL: knownPeopleSQL, Parameters: knownPeopleParameters.List(), template: "known_people.sql.tmpl"},
	{Name: "load", SQL: loadSQL, Parameters: loadParameters.List(), template: "load.sql.tmpl"},
	{Name: "release", SQL: releaseSQL, Parameters: releaseParameters.List(), template: "release.sql.tmpl"},
	{Name: "reseal_emails", SQL: resealEmailsSQL, Parameters: resealParameters.List(), template: "reseal.sql.tmpl", options: options{"Table": "email_outbox"}},
	{Name: "reseal_entries", SQL: resealEntriesSQL, Parameters: resealParameters.List(), template: "reseal.sql.tmpl", options: options{"Table": "mailing_entries"}},
	{Name: "reseal_recipients", SQL: resealRecipientsSQL, Parameters: resealParameters.List(), template: "reseal.sql.tmpl", options: options{"Table": "recipients"}},
	{Name: "size_files", SQL: sizeFilesSQL, Parameters: sizeFilesParameters.List(), template: "size_files.sql.tmpl"},
	{Name: "take_keys", SQL: takeKeysSQL, Parameters: takeKeysParameters.List(), template: "take_keys.sql.tmpl"},
	{Name: "upsert_free_recipients", SQL: upsertFreeIntakesSQL, Parameters: upsertParameters.List(), template: "upsert_recipients.sql.tmpl", options: options{"SkipLocked": true}},
	{Name: "upsert_recipients", SQL: upsertIntakesSQL, Parameters: upsertParameters.List(), template: "upsert_recipients.sql.tmpl"},
}

// fragments are the parts that statements share. Templates name them.
var fragments = template.FuncMap{
	"erasedAddress":   func() string { return ErasedAddress },
	"gateIsOpen":      func() string { return breaker.IsOpenSQL },
	"gateProbe":       func() string { return breaker.ProbeSQL },
	"gateShutTurn":    func() string { return breaker.ShutTurnSQL },
	"insertJobSQL":    func() string { return insertJobSQL },
	"intakePersonSQL": func() string { return intake.PersonSQL },
	"personSQL":       func() string { return personSQL },
}

// The files of sql are what their templates and the descriptions of the parameters say. With -update they are
// written (go generate).
func TestStatementFiles_AreGenerated(t *testing.T) {
	t.Parallel()
	templates := template.Must(template.New("").Funcs(fragments).Option("missingkey=zero").ParseGlob("sql/*.tmpl"))
	var names []string
	for _, f := range StatementFiles {
		names = append(names, filepath.Join("sql", f.Name+".sql"))
		var text bytes.Buffer
		if err := templates.ExecuteTemplate(&text, f.template, f.options); err != nil {
			t.Fatal(err)
		}
		generated, err := f.generate(text.String())
		if err != nil {
			t.Errorf("%s: %v", f.Name, err)
			continue
		}
		if *update {
			if err := os.WriteFile(names[len(names)-1], []byte(generated), 0o644); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if generated != f.SQL {
			t.Errorf("sql/%s.sql is not what %s and its parameters make: run go generate ./store in shared", f.Name, f.template)
		}
	}
	slices.Sort(names)
	found, err := filepath.Glob("sql/*.sql")
	if err != nil || !slices.Equal(found, names) {
		t.Errorf("sql has %q, StatementFiles has %q (%v)", found, names, err)
	}
}

// The function that lays a column out makes an array of the type that is written beside it.
func TestStatementFiles_ColumnsHaveTheirType(t *testing.T) {
	t.Parallel()
	for _, f := range StatementFiles {
		for _, p := range f.Parameters {
			if p.Element == 0 {
				continue
			}
			kind := map[oid.Oid]string{
				oid.T_uuid: "uuid[]", oid.T_text: "text[]", oid.T_bytea: "bytea[]", oid.T_jsonb: "jsonb[]", oid.T_int8: "bigint[]",
				oid.T_bool: "bool[]", oid.T_timestamptz: "timestamptz[]",
			}[p.Element]
			if kind != p.Type {
				t.Errorf("%s: %s is described as %s and laid out as %s", f.Name, p.Name, p.Type, kind)
			}
		}
	}
}

var (
	// rowsPlace stands for the rows with all their columns, or with those in parentheses.
	rowsPlace = regexp.MustCompile(`\$rows\b(?:\(([a-z0-9_, ]+)\))?`)
	// namePlace stands for one parameter, perhaps with a cast.
	namePlace = regexp.MustCompile(`\$([a-z][a-z0-9_]*)((?:::[a-z]+(?:\[\])?)*)`)
)

// generate writes numbers in the place of names, and a header: what the statement does, from the template's first comment;
// its parameters; and what explains it.
func (f StatementFile) generate(text string) (string, error) {
	numbers, used := map[string]int{}, map[string]bool{}
	for i, p := range f.Parameters {
		if numbers[p.Name] != 0 {
			return "", fmt.Errorf("there are two parameters %s", p.Name)
		}
		numbers[p.Name] = i + 1
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
			if columns := rowsPlace.FindStringSubmatch(place)[1]; columns != "" {
				names = strings.Split(columns, ", ")
			} else {
				for _, p := range f.Parameters {
					if p.Element != 0 {
						names = append(names, p.Name)
					}
				}
			}
			return f.unnest(names, indent, number)
		})
		body.WriteString(namePlace.ReplaceAllStringFunc(line, func(place string) string {
			parts := namePlace.FindStringSubmatch(place)
			return fmt.Sprintf("$%d%s /* %s */", number(parts[1]), parts[2], parts[1])
		}))
	}
	for _, p := range f.Parameters {
		if !used[p.Name] {
			return "", fmt.Errorf("the statement does not use %s", p.Name)
		}
	}
	if len(unknown) > 0 {
		return "", fmt.Errorf("%q are not described", unknown)
	}
	return fmt.Sprintf("-- Generated from %s and Go's description of the parameters by go generate: do not edit.\n--\n%s--\n%s%s", f.template, comment, f.header(), body.String()), nil
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

// unnest makes rows of the arrays. More than four are written one to a line.
func (f StatementFile) unnest(names []string, indent string, number func(string) int) string {
	arrays := make([]string, len(names))
	width := 0
	for i, name := range names {
		if n := number(name); n > 0 {
			arrays[i] = fmt.Sprintf("$%d::%s", n, f.Parameters[n-1].Type)
		}
		if i < len(names)-1 {
			arrays[i] += ","
		}
		width = max(width, len(arrays[i]))
	}
	alias := ") AS t(" + strings.Join(names, ", ") + ")"
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
func (f StatementFile) header() string {
	var b strings.Builder
	var samples []string
	b.WriteString("-- Parameters; each array has one element per row:\n")
	for i, p := range f.Parameters {
		fmt.Fprintf(&b, "--   %-4s %-20s %s\n", fmt.Sprintf("$%d", i+1), p.Name, p.Type)
		samples = append(samples, sample(p.Type))
	}
	fmt.Fprintf(&b, "--\n-- EXPLAIN EXECUTE %s (%s);\n", f.Name, strings.Join(samples, ", "))
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
