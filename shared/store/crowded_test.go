package store_test

import (
	"strings"
	"sync"
	"testing"

	"github.com/jmoiron/sqlx"
	"github.com/lib/pq/pqerror"

	"email-gateway/schema"
	"email-gateway/shared/store"
	"email-gateway/shared/store/internal/pg"
	"email-gateway/shared/store/storetest"
)

// A server that gives fewer connections than the pool may have refuses no statement: callers wait for an open connection.
// The pool takes more connections once there are some.
func TestOpen_FewerConnectionsThanThePool(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	if err := schema.Roles(t.Context(), d.SQL); err != nil {
		t.Fatal(err)
	}
	company := d.Company(t)
	role := newLogin(t, d)
	run(t, d, `GRANT gateway_api TO `+role)
	run(t, d, `ALTER ROLE `+role+` CONNECTION LIMIT 4`)
	s := open(t, loginURL(t, d, role), store.Options{MaxConns: 32})
	accept := func() {
		t.Helper()
		const callers, each = 32, 20
		var wg sync.WaitGroup
		for range callers {
			wg.Go(func() {
				for range each {
					if err := s.NewAccepter().Accept(t.Context(), storetest.NewEmail(company, nil)); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		wg.Wait()
	}
	accept()
	run(t, d, `ALTER ROLE `+role+` CONNECTION LIMIT 10`)
	connections := func() int {
		return ask[int](t, d, `SELECT count(*) FROM pg_stat_activity WHERE usename = $1`, role)
	}
	for most := 0; most <= 4; most = max(most, connections()) {
		accept() // until the pool tries again
	}
}

// Transactions with a COPY, which last for minutes, use at most half of the connections that the server gives: other statements get
// one. Until that number is known, statements fail at once.
func TestOpen_CopiesLeaveConnections(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	role := newLogin(t, d)
	run(t, d, `ALTER ROLE `+role+` CONNECTION LIMIT 4`)
	s := open(t, loginURL(t, d, role), store.Options{MaxConns: 32})
	ping := func() error {
		_, err := s.DB().ExecContext(t.Context(), "SELECT")
		return err
	}
	const copies = 4
	var running sync.WaitGroup
	start := func() (began chan struct{}, end func()) {
		began, ends := make(chan struct{}, copies), make(chan struct{})
		for range copies {
			running.Go(func() {
				err := s.DB().InSteadyTx(t.Context(), func(pg.SteadyTx) error {
					began <- struct{}{}
					<-ends
					return nil
				})
				if err != nil {
					t.Error(err)
				}
			})
		}
		end = sync.OnceFunc(func() {
			close(ends)
			running.Wait()
		})
		t.Cleanup(end)
		return began, end
	}

	began, end := start()
	for range copies {
		<-began
	}
	if err := ping(); err == nil || !strings.Contains(err.Error(), string(pqerror.TooManyConnections)) {
		t.Errorf("while all connections are used for COPYs: %v", err)
	}
	end()

	began, end = start()
	<-began
	<-began
	if err := ping(); err != nil {
		t.Errorf("while others wait to begin a COPY: %v", err)
	}
	if len(began) > 0 {
		t.Error("more than half of the connections are used for COPYs")
	}
	end()
	if n := len(began); n != 2 {
		t.Errorf("%d of the waiting ones began", n)
	}
	if err := ping(); err != nil {
		t.Error(err)
	}
}

// A caller that has the only connection the server gives, and needs another one, does not wait for itself.
func TestOpen_OneConnectionOfTwo(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	role := newLogin(t, d)
	run(t, d, `ALTER ROLE `+role+` CONNECTION LIMIT 1`)
	s := open(t, loginURL(t, d, role), store.Options{MaxConns: 2})
	err := s.DB().InTx(t.Context(), func(*sqlx.Tx) error {
		_, err := s.DB().ExecContext(t.Context(), "SELECT")
		return err
	})
	if err == nil || !strings.Contains(err.Error(), string(pqerror.TooManyConnections)) {
		t.Errorf("%v, want the refusal", err)
	}
}
