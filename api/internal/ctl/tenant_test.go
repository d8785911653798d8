package ctl_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"email-gateway/api/internal/apikey"
	"email-gateway/api/internal/ctl"
	"email-gateway/api/internal/ctl/goldentest"
)

// A session of an operator, as printed.
func TestTenant_InText(t *testing.T) {
	t.Parallel()
	o, _ := newOperator(t)
	var session strings.Builder
	do := func(args ...string) string {
		t.Helper()
		out := o.must(t, args...)
		line := "$ gatewayctl"
		for _, a := range args {
			if strings.ContainsAny(a, " <>") {
				a = "'" + a + "'"
			}
			line += " " + a
		}
		session.WriteString(line + "\n" + out + "\n")
		return out
	}
	do("company", "list")
	do("company", "create", "--name", "Acme", "--default-from", "Acme <billing@ACME.example>", "--domain", "mail.acme.example,bücher.example")
	do("company", "create", "--name", "Beta Ltda", "--default-from", "ola@beta.example")
	do("domain", "add", "--company", "Acme", "Acme.COM.br")
	do("domain", "list", "--company", "Acme")
	do("domain", "remove", "--company", "Acme", "acme.example", "--reason", "sold")
	do("key", "list", "--company", "Acme")
	do("key", "create", "--company", "Acme")
	made := do("key", "create", "--company", "Acme", "--name", "invoicing", "--env", "test", "--scopes", "emails:send", "--rate", "0")
	_, id, _ := strings.Cut(made, "gatewayctl key revoke ")
	do("key", "revoke", strings.Fields(id)[0], "--reason", "leaked")
	do("key", "list", "--company", "Acme")
	do("company", "suspend", "Acme", "--reason", "unpaid")
	do("company", "suspend", "Acme", "--reason", "fraud")
	do("company", "list")
	do("company", "show", "Acme")
	do("company", "resume", "Acme")
	do("company", "resume", "Acme")
	goldentest.Compare(t, "tenant", stable(session.String()))
}

type company struct {
	ID, Name, DefaultFrom, SuspendedReason string
	SuspendedAt                            *time.Time
	CreatedAt                              time.Time
	Domains, Warnings                      []string
	Keys                                   []key
}

type key struct {
	Key, KeyID, CompanyID, Name, Environment string
	Scopes                                   []string
	RatePerSecond, Burst                     int
	CreatedAt                                time.Time
	RevokedAt                                *time.Time
}

type domains struct {
	CompanyID, Company string
	Domains            []string
}

// A company does not get all addresses of a domain that another company uses, unless the operator names the domain. Either way
// the operator sees which companies share it.
func TestCompany_SharedDomain(t *testing.T) {
	t.Parallel()
	o, _ := newOperator(t)
	o.must(t, "company", "create", "--name", "Acme", "--default-from", "acme@mail.platform.example")
	var globex, initech company
	o.decode(t, &globex, "company", "create", "--name", "Globex", "--default-from", "Globex <globex@mail.platform.example>")
	if len(globex.Domains) != 0 || len(globex.Warnings) != 2 || !strings.Contains(globex.Warnings[0], "was not registered") ||
		!strings.Contains(globex.Warnings[1], "gatewayctl domain remove --company Acme mail.platform.example") {
		t.Errorf("the default sender's domain is another company's: %+v", globex)
	}
	o.decode(t, &initech, "company", "create", "--name", "Initech", "--default-from", "a@mail.platform.example", "--domain", "mail.platform.example")
	if len(initech.Domains) != 1 || !strings.Contains(strings.Join(initech.Warnings, "\n"), "Initech may send from any address of mail.platform.example") {
		t.Errorf("the operator named the domain: %+v", initech)
	}
	added := o.must(t, "domain", "add", "--company", "Globex", "mail.platform.example")
	if !strings.Contains(added, "Globex may send from any address of mail.platform.example, a domain that Acme and Initech use too") {
		t.Errorf("domain add: %s", added)
	}
	if other := o.must(t, "domain", "add", "--company", "Globex", "platform.example"); strings.Contains(other, "too") {
		t.Errorf("a domain that no other company uses: %s", other)
	}
}

func TestCompany_JSON(t *testing.T) {
	t.Parallel()
	o, _ := newOperator(t)
	var none, all struct{ Companies []company }
	o.decode(t, &none, "company", "list")
	if none.Companies == nil || len(none.Companies) != 0 {
		t.Errorf("no company is an empty list, not %v", none.Companies)
	}

	var made, shown, suspended, resumed company
	o.decode(t, &made, "company", "create", "--name", " Acme ", "--default-from", "Acme <billing@acme.example>", "--domain", "acme.example", "--domain", "b.example")
	if made.ID == "" || made.Name != "Acme" || made.DefaultFrom != "Acme <billing@acme.example>" || made.CreatedAt.IsZero() || made.SuspendedAt != nil {
		t.Errorf("created %+v", made)
	}
	if diff := cmp.Diff([]string{"acme.example", "b.example"}, made.Domains); diff != "" {
		t.Errorf("the default sender's domain and the others (-want +got):\n%s", diff)
	}
	for _, given := range []string{"Acme", made.ID} {
		o.decode(t, &shown, "company", "show", given)
		if diff := cmp.Diff(made, shown); diff != "" {
			t.Errorf("show %s (-created +shown):\n%s", given, diff)
		}
	}
	o.decode(t, &suspended, "company", "suspend", made.ID, "--reason", "unpaid")
	if suspended.SuspendedAt == nil || suspended.SuspendedReason != "unpaid" {
		t.Errorf("suspended %+v", suspended)
	}
	var again company
	o.decode(t, &again, "company", "suspend", "Acme", "--reason", "fraud")
	if !again.SuspendedAt.Equal(*suspended.SuspendedAt) || again.SuspendedReason != "fraud" {
		t.Errorf("suspending again must change the reason and not the time: %+v", again)
	}
	o.decode(t, &all, "company", "list")
	if len(all.Companies) != 1 || all.Companies[0].SuspendedAt == nil {
		t.Errorf("listed %+v", all)
	}
	o.decode(t, &resumed, "company", "resume", "Acme")
	if resumed.SuspendedAt != nil || resumed.SuspendedReason != "" {
		t.Errorf("resumed %+v", resumed)
	}
}

func TestCompanyCreate_Senders(t *testing.T) {
	t.Parallel()
	o, _ := newOperator(t)
	tests := []struct{ given, sender, domain string }{
		{"billing@acme.example", "billing@acme.example", "acme.example"},
		{"<billing@acme.example>", "billing@acme.example", "acme.example"},
		{"Billing@ACME.Example", "Billing@acme.example", "acme.example"},
		{"Acme <billing@acme.example>", "Acme <billing@acme.example>", "acme.example"},
		{`"Acme" <billing@acme.example>`, "Acme <billing@acme.example>", "acme.example"},
		{`"Acme, Inc." <billing@acme.example>`, `"Acme, Inc." <billing@acme.example>`, "acme.example"},
		{`"AC\\DC São Paulo" <a@acdc.example>`, "=?utf-8?b?QUNcREMgU8OjbyBQYXVsbw==?= <a@acdc.example>", "acdc.example"},
		{"Demonstração <demo@demo.example>", "Demonstração <demo@demo.example>", "demo.example"},
		{"=?utf-8?q?Demonstra=C3=A7=C3=A3o?= <demo@demo.example>", "Demonstração <demo@demo.example>", "demo.example"},
		{"Bücher <kontakt@bücher.example>", "Bücher <kontakt@xn--bcher-kva.example>", "xn--bcher-kva.example"},
		{"a@r3---sn.example", "a@r3---sn.example", "r3---sn.example"}, // hyphens that IDNA rejects
	}
	for _, tt := range tests {
		var made company
		o.decode(t, &made, "company", "create", "--name", tt.given, "--default-from", tt.given, "--domain", tt.domain)
		if made.DefaultFrom != tt.sender || len(made.Domains) != 1 || made.Domains[0] != tt.domain {
			t.Errorf("%s: sender %q, domains %v", tt.given, made.DefaultFrom, made.Domains)
		}
	}
	for _, refused := range []string{
		"", "Acme", "Acme <billing>", "a@acme.example, b@acme.example", "Friends: a@acme.example;", "a b@acme.example",
		`"a b"@acme.example`, "Acme\r\nBcc: x <a@acme.example>", "=?utf-8?q?Acme=0D=0ABcc?= <a@acme.example>",
		"a@[127.0.0.1]", "a@xn--.example", strings.Repeat("x", 201) + " <a@acme.example>", strings.Repeat("名", 200) + " <a@acme.example>",
	} {
		if got := o.run(t, "company", "create", "--name", "Nobody", "--default-from", refused); got.code != ctl.ExitUsage {
			t.Errorf("%q: exit code %d, %s%s", refused, got.code, got.stdout, got.stderr)
		}
	}
	for _, name := range []string{"", " ", "A\nB", "A\x1b[2J"} {
		if got := o.run(t, "company", "create", "--name", name, "--default-from", "a@acme.example"); got.code != ctl.ExitUsage {
			t.Errorf("name %q: exit code %d, %s%s", name, got.code, got.stdout, got.stderr)
		}
	}
}

func TestDomain_JSON(t *testing.T) {
	t.Parallel()
	o, _ := newOperator(t)
	var made company
	o.decode(t, &made, "company", "create", "--name", "Acme", "--default-from", "billing@acme.example")
	steps := []struct {
		args []string
		want []string
	}{
		{[]string{"list"}, []string{"acme.example"}},
		{[]string{"add", "MAIL.acme.example"}, []string{"acme.example", "mail.acme.example"}},
		{[]string{"add", "mail.acme.example"}, []string{"acme.example", "mail.acme.example"}},
		{[]string{"add", "bücher.example"}, []string{"acme.example", "mail.acme.example", "xn--bcher-kva.example"}},
		{[]string{"remove", "Bücher.example", "--reason", "x"}, []string{"acme.example", "mail.acme.example"}},
		{[]string{"remove", "acme.example", "--reason", "x"}, []string{"mail.acme.example"}},
		{[]string{"remove", "mail.acme.example", "--reason", "x"}, []string{}},
	}
	for _, step := range steps {
		var got domains
		o.decode(t, &got, append([]string{"domain", "--company", "Acme"}, step.args...)...)
		if diff := cmp.Diff(domains{made.ID, "Acme", step.want}, got); diff != "" {
			t.Errorf("domain %v (-want +got):\n%s", step.args, diff)
		}
	}
	if text := o.must(t, "domain", "list", "--company", "Acme"); text != "Acme has no sender domain: it can only use its default sender.\n" {
		t.Error(text)
	}
}

func TestKey_JSON(t *testing.T) {
	t.Parallel()
	o, d := newOperator(t)
	var acme company
	o.decode(t, &acme, "company", "create", "--name", "Acme", "--default-from", "billing@acme.example")

	var made, limitless key
	o.decode(t, &made, "key", "create", "--company", acme.ID)
	parsed, err := apikey.Parse(made.Key)
	if err != nil || parsed.ID != made.KeyID || parsed.Environment != "live" {
		t.Fatalf("made %+v: %v", made, err)
	}
	want := key{
		Key: made.Key, KeyID: made.KeyID, CompanyID: acme.ID, Name: "default", Environment: "live",
		Scopes: []string{"emails:read", "emails:send"}, RatePerSecond: 200, Burst: 400, CreatedAt: made.CreatedAt,
	}
	if diff := cmp.Diff(want, made); diff != "" || made.CreatedAt.IsZero() {
		t.Errorf("defaults (-want +got):\n%s", diff)
	}
	// The printed key authenticates.
	caller, err := d.Store.FindCaller(t.Context(), parsed.ID)
	if err != nil || string(caller.SecretSHA256) != string(parsed.SecretSHA256()) || caller.CompanyID.String() != acme.ID {
		t.Errorf("stored %+v, %v", caller, err)
	}

	o.decode(t, &limitless, "key", "create", "--company", "Acme", "--env", "dev", "--rate", "0", "--burst", "0",
		"--scopes", "emails:send,emails:send", "--scopes", "deadletters:write")
	if diff := cmp.Diff([]string{"deadletters:write", "emails:send"}, limitless.Scopes); diff != "" || limitless.RatePerSecond != 0 {
		t.Errorf("made %+v\n%s", limitless, diff)
	}

	var list struct{ Keys []key }
	o.decode(t, &list, "key", "list", "--company", "Acme")
	if len(list.Keys) != 2 || list.Keys[0].KeyID != made.KeyID || list.Keys[0].Key != "" {
		t.Errorf("listed %+v", list)
	}
	var revoked, again key
	o.decode(t, &revoked, "key", "revoke", made.KeyID, "--reason", "x")
	o.decode(t, &again, "key", "revoke", made.KeyID, "--reason", "x")
	if revoked.RevokedAt == nil || !again.RevokedAt.Equal(*revoked.RevokedAt) {
		t.Errorf("revoked %+v, again %+v", revoked, again)
	}
}

// A secret is shown only by the command that creates it: no other command, no error and no
// row contains it.
func TestKey_SecretIsShownOnce(t *testing.T) {
	t.Parallel()
	o, d := newOperator(t)
	o.must(t, "company", "create", "--name", "Acme", "--default-from", "billing@acme.example")
	for _, format := range [][]string{nil, {"--json"}} {
		made := o.run(t, append([]string{"key", "create", "--company", "Acme"}, format...)...)
		at := strings.Index(made.stdout, "gw_live_")
		whole, _, _ := strings.Cut(made.stdout[at:], "\n")
		whole = strings.TrimRight(whole, `",`)
		parsed, err := apikey.Parse(whole)
		if err != nil {
			t.Fatalf("%q: %v", whole, err)
		}
		if strings.Count(made.stdout, parsed.Secret) != 1 || strings.Contains(made.stderr, parsed.Secret) {
			t.Errorf("shown more than once:\n%s%s", made.stdout, made.stderr)
		}
		for _, args := range [][]string{
			{"key", "list", "--company", "Acme"},
			{"company", "show", "Acme"},
			{"key", "revoke", whole, "--reason", "x"}, // people paste the whole key
			{"key", "revoke", "x" + whole, "--reason", "x"},
			{"audit", "list"},
			{"key", "revoke", parsed.Secret, "--reason", "x"},
			{"key", "revoke", "a", whole},
			{"key", "rvoke", parsed.ID},
		} {
			for _, args := range [][]string{args, append(args, "--json")} {
				got := o.run(t, args...)
				if strings.Contains(got.stdout+got.stderr, parsed.Secret) {
					t.Errorf("gatewayctl %v shows the secret", args)
				}
			}
		}
		caller, err := d.Store.FindCaller(t.Context(), parsed.ID)
		if err != nil || caller.RevokedAt == nil {
			t.Errorf("revoke with the whole key has not revoked it: revoked at %v, error %v", caller.RevokedAt, err)
		}
		var stored bool
		err = d.SQL.QueryRowContext(t.Context(), `SELECT bool_or(k::text LIKE '%' || $1 || '%') FROM (SELECT api_keys::text FROM api_keys UNION ALL SELECT operator_audit::text FROM operator_audit) k`, parsed.Secret).Scan(&stored)
		if err != nil || stored {
			t.Errorf("the secret is stored: %v, %v", stored, err)
		}
	}
}
