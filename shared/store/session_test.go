package store_test

import (
	"context"
	"errors"
	"testing"

	"github.com/google/uuid"

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
		if err := replacePrepared(t.Context(), s); err != nil {
			t.Fatal(err)
		}
	}
}

// Feedback is recorded in a transaction that prepares its statements, also on the only connection of a pool, and behind a
// pooler that the configuration does not name, whose connections lose their statements or have others under the same names.
func TestPrepared_InTransactions(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	for name, lose := range map[string]func(context.Context, *store.Store) error{"lost": forgetPrepared, "other": replacePrepared, "other before": replacePrepared} {
		s := open(t, d.URL, store.Options{MaxConns: 1})
		if name == "other before" {
			if err := lose(t.Context(), s); err != nil {
				t.Fatal(err)
			}
		}
		for n := range 3 {
			id, token := d.Accept(t, company, nil), uuid.New()
			storetest.Apply(t, d, storetest.ClaimOf(company, id, token, "C"), storetest.SentOf(id, token))
			r, err := s.RecordFeedback(t.Context(), deliveryReport(company, id, token, nil))
			if err != nil || r.Unmatched || story(t, d, id) != tried+"SENT DELIVERED" {
				t.Fatalf("%s, notification %d: %+v, %v", name, n, r, err)
			}
			if err := lose(t.Context(), s); err != nil {
				t.Fatal(err)
			}
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
	if _, err := s.RecordFeedback(t.Context(), deliveryReport(uuid.New(), uuid.New(), uuid.New(), nil)); err != nil {
		t.Fatal(err)
	}
	if n, err := preparedStatements(t.Context(), s); err != nil || n != 0 {
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

// A connection to a server that became read-only is closed: the next write uses a new connection.
func TestReadOnlyServerIsLeft(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	s := open(t, d.URL, store.Options{MaxConns: 2})
	if err := turnReadOnly(t.Context(), s, 2); err != nil {
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

// forgetPrepared drops all prepared statements of a connection behind the driver's back.
func forgetPrepared(ctx context.Context, s *store.Store) error {
	_, err := s.DB().ExecContext(ctx, `DEALLOCATE ALL`)
	return err
}

// replacePrepared puts other statements in the place of those that a connection has prepared.
func replacePrepared(ctx context.Context, s *store.Store) error {
	_, err := s.DB().ExecContext(ctx, `DEALLOCATE ALL; PREPARE "1" AS SELECT $1::int; PREPARE "2" AS SELECT $1::int; PREPARE "3" AS SELECT $1::int`)
	return err
}

// preparedStatements are those of a connection.
func preparedStatements(ctx context.Context, s *store.Store) (n int, err error) {
	return n, s.DB().GetContext(ctx, &n, `SELECT count(*) FROM pg_prepared_statements`)
}

// turnReadOnly makes n connections those of a server that takes no writes.
func turnReadOnly(ctx context.Context, s *store.Store, n int) error {
	for range n {
		conn, err := s.DB().Connx(ctx)
		if err != nil {
			return err
		}
		defer conn.Close() //nolint:errcheck // it goes back to the pool
		if _, err := conn.ExecContext(ctx, `SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY`); err != nil {
			return err
		}
	}
	return nil
}
