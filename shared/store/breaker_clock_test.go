package store_test

import (
	"testing"

	"email-gateway/shared/store/storetest"
)

// The server that chose the last probe had a clock that was ahead of this one's: a failover must not stop probes until
// this clock has reached it. A time that is ahead by less than a pause may be that of a concurrent transaction.
func TestPickProbe_AfterClockWasAhead(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	email := d.Accept(t, d.Company(t), nil)
	openBreaker(t, d, "SES_TIMEOUT")
	run(t, d, `UPDATE provider_gate SET probe_at = clock_timestamp() + interval '4 s'`)
	if early, found := pick(t, d); found {
		t.Errorf("a probe %+v beside a concurrent one", early)
	}
	run(t, d, `UPDATE provider_gate SET probe_at = now() + interval '1 h'`)
	if probe, found := pick(t, d); !found || probe.ID != email {
		t.Fatalf("probe %+v, %v", probe, found)
	}
	if again, found := pick(t, d); found {
		t.Errorf("a second probe, %+v", again)
	}
}
