package store_test

import (
	"bytes"
	"database/sql"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/lib/pq"

	"email-gateway/shared/store"
	"email-gateway/shared/store/internal/statementtest"
	"email-gateway/shared/store/storetest"
)

// typed is a parameter of a type, and what Postgres answers for it.
type typed struct {
	kind string // as Postgres calls it
	// read is an expression of the parameter, $1::kind by default.
	read      string
	arg, want any
	scan      func(*sql.Row) (any, error)
}

func parameter[T any](kind string, arg any, want T) typed {
	return readAs(kind, "$1::"+kind, arg, want)
}

func readAs[T any](kind, read string, arg any, want T) typed {
	return typed{kind: kind, read: read, arg: arg, want: want, scan: func(row *sql.Row) (any, error) {
		var got T
		err := row.Scan(&got)
		return got, err
	}}
}

// typedParameters has a value of every type that a statement of this package or of one below takes, and NULL where one
// is passed. Arrays are passed as lib/pq writes them, as text, and as array.go does, binary.
func typedParameters() []typed {
	id, at := uuid.MustParse("0190a5d0-0000-7000-8000-00000000ff5c"), time.Date(2026, 1, 2, 3, 4, 5, 678000, time.UTC)
	const text = "a\"'\\{}\n"
	data := []byte{0, 1, 0xff, '\\'}
	columns := columnsOf([]cell{{}, {ID: id, Text: text, Bytes: data, JSON: []byte(`{"a": 1}`), N: -7, Yes: true, At: at}})
	columns[5] = columnsOf([]cell{{JSON: []byte(`{}`)}, {JSON: []byte(`{"a": 1}`)}})[5]
	const uuids, optionalUUIDs, texts, optionalTexts, byteas, jsonbs, bigints, optionalBigints, bools, times = 0, 1, 2, 3, 4, 5, 6, 7, 8, 9
	return []typed{
		parameter("uuid", id, id),
		parameter("uuid", nil, uuid.NullUUID{}),
		parameter("bigint", int64(-1<<62), int64(-1<<62)),
		parameter("bigint", nil, sql.NullInt64{}),
		parameter("integer", -7, int64(-7)),
		parameter("integer", nil, sql.NullInt64{}),
		parameter("smallint", 202, int64(202)),
		parameter("smallint", nil, sql.NullInt64{}),
		parameter("double precision", int64(1500), 1500.0),
		parameter("double precision", 0.1, 0.1),
		parameter("boolean", true, true),
		parameter("boolean", nil, sql.NullBool{}),
		parameter("text", text, text),
		parameter("text", nil, sql.NullString{}),
		parameter("bytea", data, data),
		parameter("bytea", []byte(nil), []byte(nil)),
		parameter("jsonb", `{"a": [1, "b"]}`, `{"a": [1, "b"]}`),
		parameter("jsonb", nil, sql.NullString{}),
		parameter("timestamp with time zone", at, sql.NullTime{Time: at, Valid: true}),
		parameter("timestamp with time zone", nil, sql.NullTime{}),
		parameter("interval", "90 seconds", "00:01:30"),
		parameter("cidr", "10.0.0.0/8", "10.0.0.0/8"),
		parameter("name", "gateway_program", "gateway_program"),
		parameter("text[]", pq.Array([]string{"x", `"{},\`, ""}), pq.StringArray{"x", `"{},\`, ""}),
		parameter("text[]", nil, pq.StringArray(nil)),
		parameter("text[]", columns[texts], pq.StringArray{"", text}),
		readAs("text[]", "($1::text[])[1]", columns[optionalTexts], sql.NullString{}),
		parameter("uuid[]", pq.Array([]uuid.UUID{id}), pq.StringArray{id.String()}),
		parameter("uuid[]", columns[uuids], pq.StringArray{uuid.Nil.String(), id.String()}),
		readAs("uuid[]", "($1::uuid[])[1]", columns[optionalUUIDs], uuid.NullUUID{}),
		parameter("bigint[]", pq.Array([]int64{1, -2}), pq.Int64Array{1, -2}),
		parameter("bigint[]", columns[bigints], pq.Int64Array{0, -7}),
		readAs("bigint[]", "($1::bigint[])[1]", columns[optionalBigints], sql.NullInt64{}),
		parameter("boolean[]", pq.Array([]bool{true, false}), pq.BoolArray{true, false}),
		parameter("boolean[]", columns[bools], pq.BoolArray{false, true}),
		parameter("bytea[]", pq.Array([][]byte{data}), pq.ByteaArray{data}),
		readAs("bytea[]", "($1::bytea[])[2]", columns[byteas], data),
		readAs("bytea[]", "($1::bytea[])[1]", columns[byteas], []byte(nil)),
		parameter("jsonb[]", columns[jsonbs], pq.StringArray{"{}", `{"a": 1}`}),
		readAs("timestamp with time zone[]", "($1::timestamptz[])[2]", columns[times], sql.NullTime{Time: at, Valid: true}),
		readAs("timestamp with time zone[]", "($1::timestamptz[])[1]", columns[times], sql.NullTime{}),
		parameter("regtype[]", pq.Array([]string{"bigint", "uuid"}), pq.StringArray{"bigint", "uuid"}),
	}
}

// Every type that a parameter has is the same value prepared and unprepared, there and back.
func TestTypes_PreparedAndNot(t *testing.T) {
	t.Parallel()
	db := storetest.Connect(t, storetest.New(t), store.Options{})
	for _, p := range typedParameters() {
		query := "SELECT " + p.read
		prepared, err := db.PrepareContext(t.Context(), query)
		if err != nil {
			t.Fatal(err)
		}
		for name, row := range map[string]func() *sql.Row{
			"prepared": func() *sql.Row { return prepared.QueryRowContext(t.Context(), p.arg) },
			"unnamed":  func() *sql.Row { return db.QueryRowContext(t.Context(), query, p.arg) },
		} {
			got, err := p.scan(row())
			if err != nil {
				t.Errorf("%s of %v, %s: %v", query, p.arg, name, err)
			} else if diff := cmp.Diff(p.want, got); diff != "" {
				t.Errorf("%s of %v, %s: %s", query, p.arg, name, diff)
			}
		}
		if err := prepared.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

var (
	parameterCast = regexp.MustCompile(`\$\d+(?: /\* \w+ \*/)?\)?::([a-z]+(?:\[\])?)`)
	// longNames are those of Postgres for the names that the sources use.
	longNames = map[string]string{"bool": "boolean", "int": "integer", "float": "double precision", "timestamptz": "timestamp with time zone"}
)

func longName(kind string) string {
	element, array := strings.CutSuffix(kind, "[]")
	if long, ok := longNames[element]; ok {
		element = long
	}
	if array {
		return element + "[]"
	}
	return element
}

// typedParameters leaves out no type: neither one that Postgres infers for a parameter of a statement, nor one that the sources
// of these packages cast a parameter to.
func TestTypes_AreThoseOfTheStatements(t *testing.T) {
	t.Parallel()
	var tested []string
	for _, p := range typedParameters() {
		tested = append(tested, p.kind)
	}
	used := map[string]string{} // where each is used
	for _, folder := range sourceFolders(t) {
		files, err := filepath.Glob(filepath.Join(folder, "*.go"))
		statements, err2 := filepath.Glob(filepath.Join(folder, "*.sql"))
		if files = append(files, statements...); err != nil || err2 != nil || len(files) == 0 {
			t.Fatal(files, err, err2)
		}
		for _, name := range files {
			if strings.HasSuffix(name, "_test.go") {
				continue
			}
			text, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			for _, cast := range parameterCast.FindAllSubmatch(text, -1) {
				used[longName(string(bytes.TrimSpace(cast[1])))] = name
			}
		}
	}
	for _, f := range statementtest.Files() {
		for _, p := range statementtest.Parameters(statementFile(t, f.Name)) {
			used[longName(p.Type)] = f.Name
		}
	}
	if len(used) < 10 {
		t.Errorf("only %d types are used in the sources: %v", len(used), used)
	}
	conn, err := storetest.New(t).SQL.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	var methods []string
	for _, of := range callers {
		methods = append(methods, of...)
	}
	for name, text := range readSource(t).statements(t, methods...) {
		prepareOn(t, conn, name, text)
	}
	rows, err := conn.QueryContext(t.Context(), `SELECT DISTINCT ON (kind) kind::text, name FROM pg_prepared_statements, unnest(parameter_types) AS kind`)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var kind, name string
		if err := rows.Scan(&kind, &name); err != nil {
			t.Fatal(err)
		}
		used[kind] = name
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	for kind, where := range used {
		if !slices.Contains(tested, kind) {
			t.Errorf("%s has a parameter of type %s, which typedParameters lacks", where, kind)
		}
	}
}
