package store_test

import (
	"bytes"
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/lib/pq"

	"email-gateway/shared/store"
	"email-gateway/shared/store/storetest"
)

// Behind a pooler the name of a statement may stand for another one, of another process. Postgres then refuses
// the parameters with SQLSTATE 08P01, and nothing was written: the email is accepted all the same.
func TestPreparedStatementsOfOthers(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	s := open(t, d.URL, store.Options{MaxConns: 1})
	accepter := s.NewAccepter()
	for i := range 3 {
		e := storetest.NewEmail(company, nil)
		if err := accepter.Accept(t.Context(), e); err != nil {
			t.Fatalf("email %d: %v", i, err)
		}
		if n := ask[int](t, d, `SELECT count(*) FROM email_outbox WHERE id = $1`, e.ID); n != 1 {
			t.Fatalf("email %d: %d rows", i, n)
		}
		if err := s.Replace(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

// A pooled store prepares nothing.
func TestPooled_PreparesNothing(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	s := open(t, d.URL, store.Options{MaxConns: 1, Pooled: true})
	if err := s.NewAccepter().Accept(t.Context(), storetest.NewEmail(d.Company(t), nil)); err != nil {
		t.Fatal(err)
	}
	if n, err := s.PreparedStatements(t.Context()); err != nil || n != 0 {
		t.Errorf("%d prepared statements, %v", n, err)
	}
}

// Postgres itself is no pooler.
func TestPooled_NotWithoutOne(t *testing.T) {
	t.Parallel()
	s := open(t, storetest.New(t).URL, store.Options{MaxConns: 2})
	if pooled, err := s.Pooled(t.Context()); pooled || err != nil {
		t.Errorf("got %t, %v", pooled, err)
	}
}

// A server that takes no writes any more is left: the next write goes over a new connection.
func TestReadOnlyServerIsLeft(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	s := open(t, d.URL, store.Options{MaxConns: 2})
	if err := s.TurnReadOnly(t.Context(), 2); err != nil {
		t.Fatal(err)
	}
	accepter := s.NewAccepter()
	err := accepter.Accept(t.Context(), storetest.NewEmail(company, nil))
	if !errors.Is(err, store.ErrUnavailable) || errors.Is(err, store.ErrUnknownOutcome) {
		t.Fatalf("got %v, want ErrUnavailable alone", err)
	}
	for range 4 {
		if err := accepter.Accept(t.Context(), storetest.NewEmail(company, nil)); err != nil {
			t.Fatal(err)
		}
	}
}

// Without a synchronous standby a commit is confirmed at once.
func TestConfirm(t *testing.T) {
	t.Parallel()
	s := open(t, storetest.New(t).URL, store.Options{MaxConns: 1})
	if err := s.Confirm(t.Context()); err != nil || s.Unreplicated() != 0 {
		t.Errorf("%v, %d", err, s.Unreplicated())
	}
}

// Every type that a column has is the same value prepared and unprepared, there and back.
func TestTypes_PreparedAndNot(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	type row struct {
		ID     uuid.UUID
		NoID   uuid.NullUUID
		N      int64
		NoN    sql.NullInt64
		Yes    bool
		Text   string
		NoText sql.NullString
		Bytes  []byte
		NoByte []byte
		JSON   string
		At     time.Time
		NoAt   sql.NullTime
		Texts  pq.StringArray
		Ns     pq.Int64Array
	}
	const query = `SELECT $1::uuid, $2::uuid, $3::bigint, $4::bigint, $5::bool, $6::text, $7::text, $8::bytea, $9::bytea, $10::jsonb, $11::timestamptz,
		$12::timestamptz, $13::text[], $14::bigint[]`
	id, at := uuid.New(), time.Date(2026, 1, 2, 3, 4, 5, 678000, time.UTC)
	args := []any{
		id, nil, int64(-7), nil, true, "a\"'\\{}\n", nil,
		[]byte{0, 1, 0xff, '\\'},
		nil, `{"a": [1, "b"]}`, at, nil,
		pq.Array([]string{"x", `"{},\`, ""}), pq.Array([]int64{1, -2}),
	}
	db := direct(t, d)
	prepared, err := db.PrepareContext(t.Context(), query)
	if err != nil {
		t.Fatal(err)
	}
	defer prepared.Close()
	for name, ask := range map[string]func() *sql.Row{
		"prepared": func() *sql.Row { return prepared.QueryRowContext(t.Context(), args...) },
		"unnamed":  func() *sql.Row { return db.QueryRowContext(t.Context(), query, args...) },
	} {
		var r row
		if err := ask().Scan(&r.ID, &r.NoID, &r.N, &r.NoN, &r.Yes, &r.Text, &r.NoText, &r.Bytes, &r.NoByte, &r.JSON, &r.At, &r.NoAt, &r.Texts, &r.Ns); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		switch {
		case r.ID != id, r.N != -7, !r.Yes, r.Text != args[5], !bytes.Equal(r.Bytes, []byte{0, 1, 0xff, '\\'}), r.JSON != args[9], !r.At.Equal(at),
			r.NoID.Valid, r.NoN.Valid, r.NoText.Valid, r.NoByte != nil, r.NoAt.Valid,
			len(r.Texts) != 3 || r.Texts[1] != `"{},\`, len(r.Ns) != 2 || r.Ns[1] != -2:
			t.Errorf("%s: %+v", name, r)
		}
	}
}
