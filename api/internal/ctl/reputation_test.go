package ctl_test

import (
	"strings"
	"testing"

	"email-gateway/api/internal/ctl"
)

type reputationOf struct {
	CompanyID, Company    string
	Enabled, OwnSetting   bool
	MailingsPausedAt      *string
	Pause                 any
	CountsFrom, CheckedAt string
	Rules                 []struct {
		Rule                                   string
		Own                                    bool
		Sent, Events                           int
		RatePercent, WarnPercent, PausePercent float64
		MinSent, MinEvents                     int
	}
}

func TestCompanyReputation(t *testing.T) {
	t.Parallel()
	o, d := newOperator(t)
	o.must(t, "company", "create", "--name", "Acme", "--default-from", "billing@acme.example")
	var got reputationOf
	o.decode(t, &got, "company", "reputation", "set", "Acme", "bounces_1h=8,15.5,500,50", "guard=off", "--reason", "agreed")
	if got.Company != "Acme" || got.Enabled || !got.OwnSetting || len(got.Rules) != 4 {
		t.Errorf("%+v", got)
	}
	o.decode(t, &got, "company", "reputation", "set", "Acme", "guard=default")
	if r := got.Rules[2]; !got.Enabled || got.OwnSetting || r.Rule != "bounces_1h" || !r.Own || r.WarnPercent != 8 || r.PausePercent != 15.5 || r.MinSent != 500 || r.MinEvents != 50 {
		t.Errorf("%+v", got)
	}
	if r := got.Rules[1]; r.Own || r.WarnPercent != 0.15 || r.PausePercent != 0.3 || r.MinSent != 1000 || r.MinEvents != 10 {
		t.Errorf("defaults: %+v", r)
	}
	if text := o.must(t, "company", "reputation", "resume", "Acme", "--reason", "r"); !strings.Contains(text, "not paused") {
		t.Errorf("resuming a company that is not paused: %s", text)
	}
	if _, err := d.SQL.ExecContext(t.Context(), `UPDATE companies SET mailings_paused_at = now()`); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"company", "reputation", "show", "Acme"}, {"company", "show", "Acme"}, {"company", "list"}} {
		if text := o.must(t, args...); !strings.Contains(text, "paused") {
			t.Errorf("%q does not show the pause:\n%s", args, text)
		}
	}
	if got := o.run(t, "company", "reputation", "resume", "Acme", "--reason", " "); got.code != ctl.ExitUsage {
		t.Errorf("without --reason: exit code %d, %s", got.code, got.stderr)
	}
	if text := o.must(t, "company", "reputation", "resume", "Acme", "--reason", "cleaned"); !strings.Contains(text, "continue") {
		t.Errorf("resume: %s", text)
	}
	if n := count(t, d, `SELECT count(*) FROM operator_audit WHERE action = 'company.resume-mailings' AND reason = 'cleaned'`); n != 1 {
		t.Errorf("%d resumes in the audit", n)
	}
	if n := count(t, d, `SELECT count(*) FROM companies WHERE mailings_paused_at IS NOT NULL`); n != 0 {
		t.Error("still paused")
	}
	for name, args := range map[string][]string{
		"nothing":        {"Acme"},
		"unknown rule":   {"Acme", "opens_1h=1,2,3,4"},
		"no value":       {"Acme", "bounces_1h"},
		"warn > pause":   {"Acme", "bounces_1h=3,2,100,10"},
		"three numbers":  {"Acme", "bounces_1h=1,2,100"},
		"more than all":  {"Acme", "bounces_1h=1,101,100,10"},
		"no sends":       {"Acme", "bounces_1h=1,2,0,10"},
		"twice":          {"Acme", "bounces_1h=1,2,3,4", "bounces_1h=default"},
		"guard twice":    {"Acme", "guard=on", "guard=on"},
		"guard unknown":  {"Acme", "guard=maybe"},
		"one bad of two": {"Acme", "bounces_1h=1,2,3,4", "guard=maybe"},
	} {
		if got := o.run(t, append([]string{"company", "reputation", "set"}, args...)...); got.code != ctl.ExitUsage || got.stderr == "" {
			t.Errorf("%s: exit code %d, %s%s", name, got.code, got.stdout, got.stderr)
		}
	}
	if n := count(t, d, `SELECT count(*) FROM operator_audit WHERE action = 'company.reputation'`); n != 2 {
		t.Errorf("%d changes in the audit", n)
	}
}
