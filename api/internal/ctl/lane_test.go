package ctl_test

import (
	"strings"
	"testing"

	"email-gateway/api/internal/ctl/goldentest"
	"email-gateway/shared/store/breaker"
	"email-gateway/shared/store/lane"
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
	refused := func(args ...string) {
		t.Helper()
		got := o.run(t, args...)
		if got.code == 0 {
			t.Errorf("%s: %s", args, got.stdout)
		}
		session.WriteString("$ gatewayctl " + strings.Join(args, " ") + "\n" + got.stderr + "\n")
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
	refused("lane", "pause", "--company", "Acme", "--queue", "email:send", "--reason", "quota")
	do("lane", "pause", "--company", "Acme", "--reason", "quota")
	refused("lane", "resume", "--company", "Acme")
	refused("lane", "resume", "--company", "Acme", "--paused-for", "Quota")
	do("lane", "resume", "--company", "Acme", "--paused-for", "quota")
	do("lane", "pause", "--company", "Acme", "--queue", "email:send", "--reason", "SES asked", "--yes")
	refused("lane", "pause", "--all", "--reason", "outage")
	do("lane", "pause", "--all", "--reason", "outage", "--yes")
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
	var held breaker.Breaker
	o.decode(t, &held, "lane", "pause", "--all", "--reason", "drill")
	if held.HeldAt == nil || held.HeldReason == nil || *held.HeldReason != "drill" || held.IsOpen {
		t.Errorf("sending is %+v, want held", held)
	}
	var changed struct {
		Company string
		Changed int
		Lanes   []lane.Lane
	}
	o.decode(t, &changed, "lane", "pause", "--company", "Acme", "--reason", "x")
	if changed.Company != "Acme" || changed.Changed != len(changed.Lanes) || changed.Changed == 0 {
		t.Errorf("changed %+v", changed)
	}
	var listed struct {
		Breaker breaker.Breaker
		Lanes   []lane.Lane
		More    bool
	}
	o.decode(t, &listed, "lane", "list")
	if listed.Breaker.HeldAt == nil || len(listed.Lanes) != changed.Changed || listed.Lanes[0].HeldAt == nil {
		t.Errorf("listed %+v", listed)
	}
	o.must(t, "lane", "resume", "--company", "Acme")
	o.decode(t, &listed, "lane", "list")
	if listed.Lanes == nil || len(listed.Lanes) != 0 {
		t.Errorf("listed %+v, want an empty list", listed.Lanes)
	}
}

// The lanes of mailings that have ended, whose number grows, do not hide those that an operator has paused.
func TestLane_BesideManyEndedMailings(t *testing.T) {
	t.Parallel()
	o, d := newOperator(t)
	o.must(t, "company", "create", "--name", "Acme", "--default-from", "billing@acme.example")
	o.must(t, "company", "create", "--name", "Zeta", "--default-from", "billing@zeta.example")
	lanes := func(status string, n int) {
		t.Helper()
		d.Run(t, `WITH made AS (
				INSERT INTO mailings (id, company_id, request_id, filename, storage_url, file_sha256, request_sha256, answer, subject, html, html_sha256,
					checker_version, fields, sender, status, total_lines, accepted, invalid, duplicates, counted_at)
				SELECT gen_random_uuid(), c.id, 'r', gen_random_uuid() || '.csv', 'file:///a', sha256('a'), sha256('b'), '', 's', '<p>', sha256('c'), 1, '{}', 'a@acme.example',
					$1, 0, 0, 0, 0, now()
				FROM companies c, generate_series(1, $2) WHERE c.name = 'Acme'
				RETURNING id, company_id)
			INSERT INTO dispatch_lanes (company_id, queue, mailing_id, paused_at) SELECT company_id, 'email:send:low', id, now() FROM made`, status, n)
	}
	lanes("CANCELLED", 1001)
	o.must(t, "lane", "pause", "--company", "Zeta", "--queue", "email:send", "--reason", "complaints")
	if text := o.must(t, "lane", "list"); !strings.Contains(text, "Zeta") || strings.Count(text, "\n") != 2 {
		t.Errorf("%d lines: %.500s", strings.Count(text, "\n"), text)
	}
	lanes("PAUSED", 1001)
	var listed struct {
		Breaker breaker.Breaker
		Lanes   []lane.Lane
		More    bool
	}
	o.decode(t, &listed, "lane", "list")
	if len(listed.Lanes) != 1000 || !listed.More || listed.Lanes[0].HeldAt == nil {
		t.Errorf("%d lanes, %+v first, more: %v", len(listed.Lanes), listed.Lanes[0], listed.More)
	}
	text := o.must(t, "lane", "list")
	if lines := strings.Split(text, "\n"); !strings.HasPrefix(lines[1], "Zeta ") || lines[1001] != "Only the first 1000 lanes are shown." {
		t.Errorf("%s\n%s", lines[1], lines[len(lines)-2])
	}
	if got := o.run(t, "doctor"); !strings.Contains(got.stdout, "1 lane is paused by operators, the first one of Zeta") {
		t.Error(got.stdout)
	}
}
