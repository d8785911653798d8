package store_test

import (
	"context"
	"database/sql"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/lib/pq"

	"email-gateway/shared/store/storetest"
)

// treeReader has Postgres print the query trees of what is run on its connection.
type treeReader struct {
	conn    *sql.Conn
	company companyColumns
	names   map[string]string // of the tables with company_id, by oid

	mu    sync.Mutex
	shown []string
}

func newTreeReader(t *testing.T, d storetest.Database) *treeReader {
	t.Helper()
	connector, err := pq.NewConnector(d.URL)
	if err != nil {
		t.Fatal(err)
	}
	r := &treeReader{company: companyColumns{}, names: map[string]string{}}
	db := sql.OpenDB(pq.ConnectorWithNoticeHandler(connector, func(n *pq.Error) {
		r.mu.Lock()
		defer r.mu.Unlock()
		if n.Message == "rewritten parse tree:" {
			r.shown = append(r.shown, n.Detail)
		}
	}))
	t.Cleanup(func() { _ = db.Close() })
	if r.conn, err = db.Conn(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.conn.Close() })
	execOn(t, r.conn, "SET client_min_messages = log")
	rows, err := r.conn.QueryContext(t.Context(), `
SELECT a.attrelid::text, c.relname, a.attnum FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
WHERE a.attname = 'company_id' AND c.relkind IN ('r', 'p') AND c.relnamespace = 'public'::regnamespace`)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var oid, name string
		var number int
		if err := rows.Scan(&oid, &name, &number); err != nil {
			t.Fatal(err)
		}
		r.company[oid], r.names[oid] = number, name
	}
	if err := rows.Err(); err != nil || len(r.company) < 10 {
		t.Fatalf("%d tables with company_id (%v)", len(r.company), err)
	}
	return r
}

// trees runs a statement and returns the trees of all queries that Postgres has read for
// it, those inside of functions too. Views are resolved in them.
func (r *treeReader) trees(t *testing.T, statement string) ([]*node, error) {
	t.Helper()
	execOn(t, r.conn, "SET debug_print_rewritten = on")
	r.mu.Lock()
	r.shown = nil
	r.mu.Unlock()
	_, failed := r.conn.ExecContext(context.WithoutCancel(t.Context()), statement)
	r.mu.Lock()
	shown := r.shown
	r.mu.Unlock()
	execOn(t, r.conn, "SET debug_print_rewritten = off")
	var all []*node
	for _, text := range shown {
		tree, err := parseTree(text)
		if err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
		all = append(all, tree)
	}
	return all, failed
}

// unbound lists the tables of the trees that are not bound to a company, by name and alias.
func (r *treeReader) unbound(trees []*node) []string {
	var all []string
	for _, tree := range trees {
		for _, place := range r.company.unbound(tree) {
			oid, alias, _ := strings.Cut(place, " ")
			all = append(all, r.names[oid]+" "+alias)
		}
	}
	slices.Sort(all)
	return all
}

// named returns the tables with company_id whose names are in a function's text.
func (r *treeReader) named(text string) []string {
	return slices.DeleteFunc(slices.Sorted(maps.Values(r.names)), func(table string) bool {
		return !regexp.MustCompile(`(FROM|JOIN|INTO|UPDATE|USING|,)\s+` + table + `\b`).MatchString(text)
	})
}

// mentions reports whether one of the trees uses the table.
func (r *treeReader) mentions(trees []*node, table string) (found bool) {
	for _, tree := range trees {
		tree.each(func(n *node) bool {
			found = found || n.tag == "RANGETBLENTRY" && r.names[n.one("relid").atom] == table
			return !found
		})
	}
	return found
}

// functionsSQL finds the functions of the gateway that a role may execute, and those that
// triggers run for what the role may write: for these it needs no right to execute them. The
// bits of tgtype are those of pg_trigger.h.
const functionsSQL = `
SELECT proname, coalesce(pg_get_function_sqlbody(oid), prosrc) FROM pg_proc
WHERE pronamespace = 'public'::regnamespace AND prokind <> 'a' AND (has_function_privilege($1, oid, 'EXECUTE') OR oid IN (
    SELECT tgfoid FROM pg_trigger WHERE NOT tgisinternal AND (
        tgtype & 4 <> 0 AND has_any_column_privilege($1, tgrelid, 'INSERT') OR
        tgtype & 8 <> 0 AND has_table_privilege($1, tgrelid, 'DELETE') OR
        tgtype & 16 <> 0 AND has_any_column_privilege($1, tgrelid, 'UPDATE'))))`

// functions are the texts of functionsSQL by name.
func (r *treeReader) functions(t *testing.T, role string) map[string]string {
	t.Helper()
	rows, err := r.conn.QueryContext(t.Context(), functionsSQL, role)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	all := map[string]string{}
	for rows.Next() {
		var name, text string
		if err := rows.Scan(&name, &text); err != nil {
			t.Fatal(err)
		}
		all[name] += text
	}
	if err := rows.Err(); err != nil || len(all) == 0 {
		t.Fatalf("%d functions (%v)", len(all), err)
	}
	return all
}
