package schema_test

import (
	"slices"
	"testing"

	"email-gateway/schema"
)

// Files that were stored before 00064_file_bytes.sql count, those of a transaction that is open meanwhile too, and each once.
func TestFileBytes_BeforeTheMigration(t *testing.T) {
	t.Parallel()
	db := migratedDatabase(t)
	if err := schema.MoveTo(t.Context(), db, 63); err != nil {
		t.Fatal(err)
	}
	execute := func(do func() error) {
		t.Helper()
		if err := do(); err != nil {
			t.Fatal(err)
		}
	}
	company := legal()["companies"]
	company["id"] = companyID
	execute(func() error { return insert(t, db, "companies", company) })
	execute(func() error { return insert(t, db, "stored_files", legal()["stored_files"]) })
	open, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = open.Rollback() }()
	if _, err := open.ExecContext(t.Context(), `INSERT INTO stored_files (id, company_id, sha256, size, bytes, media_type)
		SELECT gen_random_uuid(), company_id, decode(repeat('0b', 32), 'hex'), 1, 1000, media_type FROM stored_files LIMIT 1`); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- schema.Up(t.Context(), db) }()
	awaitRow(t, db, `SELECT FROM pg_locks WHERE NOT granted AND relation = 'stored_files'::regclass AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`)
	execute(open.Commit)
	execute(func() error { return <-ended })
	execute(func() error { return insert(t, db, "stored_files", legal()["stored_files"]) })
	const use = `SELECT used::text FROM email_gateway_use(` + companyID + `, true) WHERE quota = 'stored_file_bytes'`
	before := query(t, db, `SELECT sum(bytes)::text FROM stored_files`)
	if got := query(t, db, use); !slices.Equal(got, before) {
		t.Errorf("%v bytes, want %v", got, before)
	}
}
