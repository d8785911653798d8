// Package statementtest generates and checks the files of shared/store/sql. Only tests use it.
package statementtest

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"
	"text/template"

	"email-gateway/shared/store/internal/pg"
)

var update = flag.Bool("update", false, "write the files that are generated")

// File is a file with a grouped statement.
type File struct {
	Name     string // without .sql
	Owner    string // the package that runs it
	Template string
	Options  map[string]any // choose a variant of the template
}

// Files are all of them.
func Files() []File {
	return []File{
		{Name: "accept", Owner: "outbox", Template: "accept.sql.tmpl"},
		{Name: "accept_recipients", Owner: "recipient", Template: "accept_recipients.sql.tmpl"},
		{Name: "accept_scheduled", Owner: "outbox", Template: "accept.sql.tmpl", Options: map[string]any{"Scheduled": true}},
		{Name: "add_sends", Owner: "reputation", Template: "add_sends.sql.tmpl"},
		{Name: "advance", Owner: "outbox", Template: "advance.sql.tmpl", Options: map[string]any{"SkipLocked": true}},
		{Name: "advance_plain", Owner: "outbox", Template: "advance.sql.tmpl", Options: map[string]any{"SkipLocked": true, "Plain": true}},
		{Name: "advance_waiting", Owner: "outbox", Template: "advance.sql.tmpl"},
		{Name: "append_feedback", Owner: "feedback", Template: "append_feedback.sql.tmpl"},
		{Name: "expand", Owner: "mailing", Template: "expand.sql.tmpl"},
		{Name: "feed_events", Owner: "event", Template: "feed_events.sql.tmpl"},
		{Name: "insert_deliveries", Owner: "webhook", Template: "insert_deliveries.sql.tmpl"},
		{Name: "insert_doubtful_entries", Owner: "mailing", Template: "insert_doubtful_entries.sql.tmpl"},
		{Name: "insert_rejects", Owner: "mailing", Template: "insert_rejects.sql.tmpl"},
		{Name: "known_recipients", Owner: "recipient", Template: "known_recipients.sql.tmpl"},
		{Name: "lease_jobs", Owner: "dispatch", Template: "take_due.sql.tmpl", Options: map[string]any{"Jobs": true}},
		{Name: "link_files", Owner: "file", Template: "link_files.sql.tmpl"},
		{Name: "load", Owner: "outbox", Template: "load.sql.tmpl"},
		{Name: "mark_delivered", Owner: "webhook", Template: "mark_delivered.sql.tmpl"},
		{Name: "named_lanes", Owner: "dispatch", Template: "named_lanes.sql.tmpl"},
		{Name: "read_feedback", Owner: "feedback", Template: "read_feedback.sql.tmpl"},
		{Name: "reencrypt_emails", Owner: "encryption", Template: "reencrypt.sql.tmpl", Options: map[string]any{"Table": "email_outbox"}},
		{Name: "reencrypt_entries", Owner: "encryption", Template: "reencrypt.sql.tmpl", Options: map[string]any{"Table": "mailing_entries"}},
		{Name: "reencrypt_recipients", Owner: "encryption", Template: "reencrypt.sql.tmpl", Options: map[string]any{"Table": "recipients"}},
		{Name: "release", Owner: "dispatch", Template: "release.sql.tmpl"},
		{Name: "set_reputation_defaults", Owner: "reputation", Template: "set_reputation_defaults.sql.tmpl"},
		{Name: "size_files", Owner: "mailing", Template: "size_files.sql.tmpl"},
		{Name: "take_due", Owner: "dispatch", Template: "take_due.sql.tmpl"},
		{Name: "take_feedback", Owner: "feedback", Template: "take_feedback.sql.tmpl"},
		{Name: "take_free_feedback", Owner: "feedback", Template: "take_feedback.sql.tmpl", Options: map[string]any{"SkipLocked": true}},
		{Name: "take_keys", Owner: "outbox", Template: "take_keys.sql.tmpl"},
		{Name: "update_deliveries", Owner: "webhook", Template: "update_deliveries.sql.tmpl"},
		{Name: "upsert_free_recipients", Owner: "recipient", Template: "upsert_recipients.sql.tmpl", Options: map[string]any{"SkipLocked": true}},
		{Name: "upsert_recipients", Owner: "recipient", Template: "upsert_recipients.sql.tmpl"},
		{Name: "wake_lanes", Owner: "lane", Template: "wake_lanes.sql.tmpl"},
		{Name: "with_events", Owner: "event", Template: "with_events.sql.tmpl"},
	}
}

// Package is a package that runs statements of files.
type Package struct {
	Name       string
	Folder     string                    // of the files, from that of the package
	Parameters map[string][]pg.Parameter // by the name of the file
	Fragments  template.FuncMap          // the parts that statements share, which templates name
}

// files are those of the package. Each has its parameters.
func (p Package) files(t *testing.T) []File {
	t.Helper()
	own := slices.DeleteFunc(Files(), func(f File) bool { return f.Owner != p.Name })
	for _, f := range own {
		if p.Parameters[f.Name] == nil {
			t.Fatalf("%s.sql has no parameters in package %s", f.Name, p.Name)
		}
	}
	if len(own) == 0 || len(own) != len(p.Parameters) {
		t.Fatalf("package %s has parameters of %d statements, Files has %d files of it", p.Name, len(p.Parameters), len(own))
	}
	return own
}

// CheckGenerated checks that the package's files are what their templates and the descriptions of the parameters say. With
// -update it writes them (go generate).
func CheckGenerated(t *testing.T, p Package) {
	t.Helper()
	// The other packages' fragments are in templates that this one parses too.
	fragments := template.FuncMap{}
	for _, name := range fragmentNames(t, p.Folder) {
		fragments[name] = func() string { t.Errorf("package %s has no fragment %s", p.Name, name); return "" }
	}
	for name, fragment := range p.Fragments {
		fragments[name] = fragment
	}
	templates := template.Must(template.New("").Funcs(fragments).Option("missingkey=zero").ParseGlob(filepath.Join(p.Folder, "*.tmpl")))
	for _, f := range p.files(t) {
		var text bytes.Buffer
		if err := templates.ExecuteTemplate(&text, f.Template, f.Options); err != nil {
			t.Fatal(err)
		}
		generated, err := generate(f, p.Parameters[f.Name], text.String())
		if err != nil {
			t.Errorf("%s: %v", f.Name, err)
			continue
		}
		name := filepath.Join(p.Folder, f.Name+".sql")
		if *update {
			if err := os.WriteFile(name, []byte(generated), 0o644); err != nil { //nolint:gosec // as git has it
				t.Fatal(err)
			}
			continue
		}
		if written, err := os.ReadFile(name); err != nil || string(written) != generated {
			t.Errorf("sql/%s.sql is not what %s and its parameters make: run go generate ./store/sql in shared (%v)", f.Name, f.Template, err)
		}
	}
	var names []string
	for _, f := range Files() {
		names = append(names, filepath.Join(p.Folder, f.Name+".sql"))
	}
	slices.Sort(names)
	if found, err := filepath.Glob(filepath.Join(p.Folder, "*.sql")); err != nil || !slices.Equal(found, names) {
		t.Errorf("sql has %q, Files has %q (%v)", found, names, err)
	}
}

// fragmentPlace is where a template names a fragment.
var fragmentPlace = regexp.MustCompile(`\{\{-? *([a-z]+[A-Z]\w*)\b`)

func fragmentNames(t *testing.T, folder string) (names []string) {
	t.Helper()
	templates, err := filepath.Glob(filepath.Join(folder, "*.tmpl"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range templates {
		text, err := os.ReadFile(name) //nolint:gosec // a file of the repository
		if err != nil {
			t.Fatal(err)
		}
		for _, match := range fragmentPlace.FindAllSubmatch(text, -1) {
			names = append(names, string(match[1]))
		}
	}
	return names
}

// Parameter is a parameter as the header of a file describes it.
type Parameter struct{ Name, Type string }

// described is a parameter's line of the header.
var described = regexp.MustCompile(`(?m)^--   \$\d+ +(\w+) +(.+)$`)

// Parameters are those that the header of a statement describes, in order.
func Parameters(statement string) (parameters []Parameter) {
	for _, match := range described.FindAllStringSubmatch(statement, -1) {
		parameters = append(parameters, Parameter{match[1], match[2]})
	}
	return parameters
}
