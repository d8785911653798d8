package store_test

import (
	"strings"
	"sync"
	"testing"

	"github.com/jmoiron/sqlx"
	"github.com/lib/pq/pqerror"

	"email-gateway/schema"
	"email-gateway/shared/store"
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
