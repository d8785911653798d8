package webhook_test

import (
	"errors"
	"testing"

	"github.com/google/uuid"

	"email-gateway/shared/store"
	"email-gateway/shared/store/storetest"
)

// No statement of a deletion grows with the number of stored deliveries. Endpoints of other companies keep theirs.
func TestDelete_ManyDeliveries(t *testing.T) {
	t.Parallel()
	d, s, _ := newStore(t)
	company, other := d.Company(t), d.Company(t)
	endpoint, kept := newEndpoint(t, s, company), newEndpoint(t, s, other)
	for e, of := range map[uuid.UUID]uuid.UUID{endpoint: company, kept: other} {
		d.Run(t, `INSERT INTO webhook_deliveries (id, endpoint_id, company_id, event_id, type, position, status, updated_at)
			SELECT gen_random_uuid(), $1, $2, n::text, 'email.sent', n, 'FAILED', now() FROM generate_series(1, 2500) n`, e, of)
	}
	d.Run(t, `CREATE FUNCTION refuse_many() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
		IF (SELECT count(*) FROM gone) > 1000 THEN RAISE EXCEPTION 'one statement deletes more than 1,000 rows'; END IF;
		RETURN NULL;
	END $$`)
	d.Run(t, `CREATE TRIGGER refuse_many AFTER DELETE ON webhook_deliveries REFERENCING OLD TABLE AS gone FOR EACH STATEMENT EXECUTE FUNCTION refuse_many()`)
	if err := s.Delete(t.Context(), other, endpoint); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("delete by another company: %v", err)
	}
	if err := s.Delete(t.Context(), company, endpoint); err != nil {
		t.Error(err)
	}
	if _, err := s.Find(t.Context(), company, endpoint); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("find the deleted endpoint: %v", err)
	}
	if n := storetest.Ask[int](t, d, `SELECT count(*) FROM webhook_deliveries WHERE endpoint_id = $1`, kept); n != 2500 || find(t, s, other, kept).Status != "ENABLED" {
		t.Errorf("%d deliveries of the other company", n)
	}
}
