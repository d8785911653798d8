package store_test

import (
	"sync"
	"testing"

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
