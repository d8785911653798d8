package outbox_test

import (
	"os"
	"strings"
	"testing"
)

// The examples for other languages in the schema's README run unchanged.
func TestReadme(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../schema/README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, found := strings.Cut(string(page), "\n## For programs that share the database\n")
	_, block, inside := strings.Cut(section, "\n```sql\n")
	block, _, ends := strings.Cut(block, "\n```\n")
	if !found || !inside || !ends {
		t.Fatal("the section has no example")
	}
	a := newAgenda(t)
	a.exec(t, strings.ReplaceAll(block, "01a1fe26-5f6e-7c3a-9b1e-2f4a6c8e0d12", a.company.String()))
	if n := a.count(t, `SELECT count(*) FROM interviews JOIN email_outbox o ON o.aggregate_id = interviews.id AND o.status = 'CANCELLED'`); n != 1 {
		t.Errorf("%d interviews with a reminder that was withdrawn, want one", n)
	}
}
