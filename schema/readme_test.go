package schema_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// readme returns the section of README.md under a heading.
func readme(t *testing.T, heading string) string {
	t.Helper()
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, found := strings.Cut(string(text), "\n## "+heading+"\n")
	if !found {
		t.Fatalf("README.md has no section %q", heading)
	}
	section, _, _ = strings.Cut(section, "\n## ")
	return section
}

func TestReadme_NamesEveryTable(t *testing.T) {
	t.Parallel()
	var named []string
	for _, match := range regexp.MustCompile("(?m)^\\| `(\\w+)` \\|").FindAllStringSubmatch(readme(t, "Tables"), -1) {
		named = append(named, match[1])
	}
	slices.Sort(named)
	tables := query(t, migratedDatabase(t), `
SELECT relname FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p') AND NOT relispartition AND relname NOT LIKE 'goose%' ORDER BY 1`)
	if !slices.Equal(named, tables) {
		t.Errorf("README.md names %v, the database has %v", named, tables)
	}
}

// Every index has a statement, and every named statement exists.
func TestReadme_NamesEveryIndexAndWhatItServes(t *testing.T) {
	t.Parallel()
	section := readme(t, "Indexes")
	var named []string
	for _, match := range regexp.MustCompile("(?m)^\\| `(\\w+)` \\|").FindAllStringSubmatch(section, -1) {
		named = append(named, match[1])
	}
	slices.Sort(named)
	indexes := query(t, migratedDatabase(t), `
SELECT relname FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind IN ('i', 'I') AND NOT relispartition AND relname NOT LIKE 'goose%' ORDER BY 1`)
	if !slices.Equal(named, indexes) {
		t.Errorf("README.md names %v, the database has %v", named, indexes)
	}

	var files []string
	for _, pattern := range []string{"../shared/store/*.go", "../shared/store/*/*.go"} {
		found, err := filepath.Glob(pattern)
		if err != nil || len(found) == 0 {
			t.Fatalf("no statements found: %v", err)
		}
		files = append(files, found...)
	}
	declared := map[string]bool{}
	declaration := regexp.MustCompile(`(\w+SQL)\s*= `)
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			if !strings.Contains(line, "SQL") { // the expression alone would take a minute
				continue
			}
			if match := declaration.FindStringSubmatch(line); match != nil {
				declared[match[1]] = true
			}
		}
	}
	for _, file := range regexp.MustCompile("`(\\w+\\.sql)`").FindAllStringSubmatch(section, -1) {
		if _, err := os.Stat("../shared/store/sql/" + file[1]); err != nil {
			t.Errorf("shared/store/sql has no %s", file[1])
		}
	}
	for _, constant := range regexp.MustCompile("`(\\w+SQL)`").FindAllStringSubmatch(section, -1) {
		if !declared[constant[1]] {
			t.Errorf("shared/store has no %s", constant[1])
		}
	}
}

// The arrows of the diagram are exactly the pairs that the database accepts.
func TestReadme_DrawsTheEventPaths(t *testing.T) {
	t.Parallel()
	drawn := map[string]bool{}
	names := []string{""}
	section := readme(t, "Events of an email")
	// FEEDBACK represents every name in one sentence: a hundred arrows would be unreadable.
	_, sentence, _ := strings.Cut(section, "FEEDBACK is each of ")
	sentence, _, _ = strings.Cut(sentence, ":")
	var feedback []string
	for _, match := range regexp.MustCompile("`(\\w+)`").FindAllStringSubmatch(sentence, -1) {
		feedback = append(feedback, match[1])
	}
	each := func(name string) []string {
		if name == "FEEDBACK" {
			return feedback
		}
		return []string{strings.TrimPrefix(name, "[*]")}
	}
	for _, match := range regexp.MustCompile(`(?m)^ +(\S+) --> (\w+)`).FindAllStringSubmatch(section, -1) {
		for _, from := range each(match[1]) {
			for _, to := range each(match[2]) {
				drawn[from+" → "+to] = true
				names = append(names, from, to)
			}
		}
	}
	slices.Sort(names)
	names = slices.Compact(names)
	if len(names) != 25 {
		t.Fatalf("%d names drawn: %q", len(names), names)
	}

	db := migratedDatabase(t)
	for _, previous := range names {
		for _, next := range names[1:] {
			event := row{"seq": "1", "previous": "NULL", "type": "'" + next + "'"}
			if previous != "" {
				event["seq"], event["previous"] = "2", "'"+previous+"'"
			}
			event["email_log_id"], event["created_at"] = "gen_random_uuid()", "now()"
			taken := refusedBy(t, insert(t, db, "email_events", event)) == ""
			if pair := fmt.Sprintf("%s → %s", previous, next); taken != drawn[pair] {
				t.Errorf("%s: the database accepts it: %v, the diagram has it: %v", pair, taken, drawn[pair])
			}
		}
	}
}

func TestReadme_DrawsEveryStatus(t *testing.T) {
	t.Parallel()
	var drawn []string
	for _, match := range regexp.MustCompile(`(?m)^ +(\S+) --> (\w+)`).FindAllStringSubmatch(readme(t, "States of an email"), -1) {
		drawn = append(drawn, match[2]) // every status but the beginning is a target
	}
	slices.Sort(drawn)
	drawn = slices.Compact(drawn)
	taken := query(t, migratedDatabase(t), `
SELECT DISTINCT match[1] FROM pg_constraint, regexp_matches(pg_get_constraintdef(oid), '''([A-Z_]+)''', 'g') AS match
WHERE conname = 'email_logs_status_check' ORDER BY 1`)
	if !slices.Equal(drawn, taken) {
		t.Errorf("the diagram has %v, the database accepts %v", drawn, taken)
	}
}
