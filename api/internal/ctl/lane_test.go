package ctl_test

import (
	"strings"
	"testing"

	"email-gateway/api/internal/ctl/goldentest"
	"email-gateway/shared/store"
)

// A session that pauses and resumes sending, as printed.
func TestLane_InText(t *testing.T) {
	t.Parallel()
	o, d := newOperator(t)
	var session strings.Builder
	do := func(args ...string) {
		t.Helper()
		session.WriteString("$ gatewayctl " + strings.Join(args, " ") + "\n" + o.must(t, args...) + "\n")
	}
	exec := func(statement string) {
		t.Helper()
		if _, err := d.SQL.ExecContext(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	o.must(t, "company", "create", "--name", "Acme", "--default-from", "billing@acme.example")
	exec(`INSERT INTO dispatch_lanes (company_id, queue, mailing_id, paused_at) SELECT id, 'email:send:low', gen_random_uuid(), now() FROM companies`)
	do("lane", "list")
	do("lane", "list", "--company", "Acme")
	do("lane", "pause", "--company", "Acme", "--queue", "email:send", "--reason", "complaints")
	do("lane", "pause", "--all", "--reason", "drill")
	do("lane", "list")
	exec(`UPDATE provider_gate SET state = 'shut', reason = 'SES_ACCOUNT_SENDING_PAUSED', changed_by = 'worker-1', probe_id = gen_random_uuid(), probe_at = now(), shuts = 3`)
	do("breaker", "show")
	do("lane", "resume", "--all")
	do("lane", "resume", "--company", "Acme")
	exec(`UPDATE provider_gate SET state = 'open', reason = NULL, probe_id = NULL, probe_at = NULL`)
	do("gate", "show")
	goldentest.Compare(t, "lane", stable(session.String()))
}

func TestLane_JSON(t *testing.T) {
	t.Parallel()
	o, _ := newOperator(t)
	o.must(t, "company", "create", "--name", "Acme", "--default-from", "billing@acme.example")
	var held store.Breaker
	o.decode(t, &held, "lane", "pause", "--all", "--reason", "drill")
	if held.HeldAt == nil || held.HeldReason == nil || *held.HeldReason != "drill" || held.State != store.BreakerClosed {
		t.Errorf("sending is %+v, want held", held)
	}
	var changed struct {
		Company string
		Changed int
		Lanes   []store.Lane
	}
	o.decode(t, &changed, "lane", "pause", "--company", "Acme", "--reason", "x")
	if changed.Company != "Acme" || changed.Changed != len(changed.Lanes) || changed.Changed == 0 {
		t.Errorf("changed %+v", changed)
	}
	var listed struct {
		Gate  store.Breaker
		Lanes []store.Lane
	}
	o.decode(t, &listed, "lane", "list")
	if listed.Gate.HeldAt == nil || len(listed.Lanes) != changed.Changed || listed.Lanes[0].HeldAt == nil {
		t.Errorf("listed %+v", listed)
	}
	o.must(t, "lane", "resume", "--company", "Acme")
	o.decode(t, &listed, "lane", "list")
	if listed.Lanes == nil || len(listed.Lanes) != 0 {
		t.Errorf("listed %+v, want an empty list", listed.Lanes)
	}
}
