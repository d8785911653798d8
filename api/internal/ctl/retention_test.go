package ctl_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"email-gateway/api/internal/ctl"
)

type retention struct {
	CompanyID, Company              string
	BodiesDays, FilesDays, LogsDays *int
	HashesDays                      *int
}

func TestCompanyRetention(t *testing.T) {
	t.Parallel()
	o, d := newOperator(t)
	var made company
	o.decode(t, &made, "company", "create", "--name", "Acme", "--default-from", "billing@acme.example")
	days := func(n int) *int { return &n }
	for _, step := range []struct {
		args []string
		want retention
	}{
		{nil, retention{}},
		{[]string{"--bodies", "7d", "--logs", "90d", "--reason", "their contract"}, retention{BodiesDays: days(7), LogsDays: days(90)}},
		{[]string{"--files", "3650d"}, retention{BodiesDays: days(7), FilesDays: days(3650), LogsDays: days(90)}},
		{[]string{"--hashes", "60d"}, retention{BodiesDays: days(7), FilesDays: days(3650), LogsDays: days(90), HashesDays: days(60)}},
		{[]string{"--bodies", "default", "--logs=1d"}, retention{FilesDays: days(3650), LogsDays: days(1), HashesDays: days(60)}},
		{nil, retention{FilesDays: days(3650), LogsDays: days(1), HashesDays: days(60)}},
		{[]string{"--hashes", "default"}, retention{FilesDays: days(3650), LogsDays: days(1)}},
	} {
		var got retention
		o.decode(t, &got, append([]string{"company", "retention", "Acme"}, step.args...)...)
		step.want.CompanyID, step.want.Company = made.ID, "Acme"
		if diff := cmp.Diff(step.want, got); diff != "" {
			t.Errorf("%v (-want +got):\n%s", step.args, diff)
		}
	}
	if n := count(t, d, `SELECT count(*) FROM operator_audit WHERE action = 'company.retention'`); n != 5 {
		t.Errorf("%d changes in the audit", n)
	}
	for _, refused := range []string{"7", "0d", "-1d", "3651d", "36h", "", "forever"} {
		got := o.run(t, "company", "retention", "Acme", "--logs", refused)
		if got.code != ctl.ExitUsage || !strings.Contains(got.stderr, "--logs") {
			t.Errorf("%q: exit code %d, %s%s", refused, got.code, got.stdout, got.stderr)
		}
	}
	text := o.must(t, "company", "retention", "Acme")
	want := `Acme keeps:

  bodies of emails    installation default  after their final status
  uploaded files      3650 days             after their mailing's end
  logs and timelines  1 day                 after acceptance; entries of mailings after the mailing's end
  CPF and CNPJ        installation default  after the recipient's last update; of entries and emails after their final status
`
	if diff := cmp.Diff(want, text); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
