package ctl_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"email-gateway/api/internal/ctl"
	"email-gateway/api/internal/ctl/goldentest"
)

func TestSuppression_InText(t *testing.T) {
	t.Parallel()
	tenant, _, _ := newTenant(t)
	var session strings.Builder
	do := func(args ...string) {
		t.Helper()
		session.WriteString("$ gatewayctl " + strings.Join(args, " ") + "\n" + tenant.must(t, args...) + "\n")
	}
	do("suppression", "list")
	do("suppression", "add", "Maria@Cliente.example", "--note", "asked")
	do("suppression", "add", "maria@cliente.example", "--reason", "unsubscribe")
	do("suppression", "list")
	do("suppression", "list", "--address", "MARIA@cliente.example", "--reason", "MANUAL")
	do("suppression", "remove", "maria@cliente.example", "--reason", "MANUAL")
	do("suppression", "remove", "maria@cliente.example")
	goldentest.Compare(t, "suppression", stable(session.String()))
}

func TestSuppression_JSON(t *testing.T) {
	t.Parallel()
	tenant, _, _ := newTenant(t)
	added := tenant.object(t, "suppression", "add", "ana@example.com", "--reason", "BOUNCE", "--note", "x")
	listed := tenant.object(t, "suppression", "list")
	if diff := cmp.Diff(map[string]any{"suppressions": []any{added}, "more": false}, listed); diff != "" || added["reason"] != "BOUNCE" || added["note"] != "x" || added["createdAt"] == nil {
		t.Errorf("added %v\n%s", added, diff)
	}
	if removed := tenant.object(t, "suppression", "remove", "ana@example.com"); removed["address"] != "ana@example.com" {
		t.Error(removed)
	}
	for args, want := range map[string]string{
		"suppression remove ana@example.com":                                  "NOT_FOUND",
		"suppression add x":                                                   "address is not an email address",
		"suppression add a@b.example --reason SPAM":                           `--reason "SPAM" must be one of UNSUBSCRIBE, BOUNCE, COMPLAINT, MANUAL`,
		"suppression list --reason SPAM":                                      `--reason "SPAM" must be`,
		"suppression import":                                                  "FILE is missing",
		"suppression import /nowhere":                                         "open /nowhere",
		"suppression import x --reason SPAM":                                  `--reason "SPAM" must be`,
		"suppression import " + file(t, "e.csv", ""):                          "the file is empty",
		"suppression import " + file(t, "r.csv", "email;x;X;Note;note\n"):     `columns 4 ("Note") and 5 ("note") have the same name`,
		"suppression import " + file(t, "n.csv", "nome;cidade\nAna;Recife\n"): "no column is named email",
	} {
		if got := tenant.run(t, strings.Fields(args)...); got.code == ctl.ExitOK || got.stdout != "" || !strings.Contains(got.stderr, want) {
			t.Errorf("%s: %+v", args, got)
		}
	}
}

// An operator can do the same for any company; the audit entry does not contain the address.
func TestSuppression_AsOperator(t *testing.T) {
	t.Parallel()
	tenant, by, _ := newTenant(t)
	added := by.object(t, "suppression", "add", "Ana@Example.com", "--company", "Acme", "--note", "asked on the phone")
	if diff := cmp.Diff(map[string]any{"suppressions": []any{added}, "more": false}, tenant.object(t, "suppression", "list")); diff != "" || added["note"] != "asked on the phone" {
		t.Errorf("the tenant's list differs (-operator +tenant):\n%s", diff)
	}
	list := []string{"suppression", "list", "--company", "Acme"}
	if text := by.must(t, list...); !strings.Contains(text, "a***@e***.com") || strings.Contains(text, "ana@example.com") {
		t.Error(text)
	}
	if text := by.must(t, append(list, "--reveal")...); !strings.Contains(text, "ana@example.com") {
		t.Error(text)
	}
	if text := by.must(t, append(list, "--address", "ana@example.com")...); !strings.Contains(text, "ana@example.com") {
		t.Error(text)
	}
	if text := by.must(t, append(list, "--address", "eva@example.com")...); text != "No suppressions found.\n" {
		t.Error(text)
	}
	for args, want := range map[string]string{
		"suppression list":                                                              "--company is required",
		"suppression add a@b.example --company Beta":                                    `company "Beta" not found`,
		"suppression add x --company Acme":                                              `"x" is not an email address`,
		"suppression add a@b.example --company Acme --reason SPAM":                      `--reason "SPAM" must be one of`,
		"suppression remove ana@example.com --company Acme":                             "--note is required",
		"suppression remove eva@example.com --company Acme --note x":                    "the address is not suppressed for that reason: run `gatewayctl suppression list --company Acme",
		"suppression add a@b.example --company Acme --note " + strings.Repeat("x", 201): "--note must have at most 200 characters",
	} {
		if got := by.run(t, strings.Fields(args)...); got.code == ctl.ExitOK || got.stdout != "" || !strings.Contains(got.stderr, want) {
			t.Errorf("%s: %+v", args, got)
		}
	}
	if got := tenant.run(t, append(list, "--reveal")...); got.code != ctl.ExitUsage || !strings.Contains(got.stderr, "--company and --reveal are only for operators") {
		t.Errorf("%+v", got)
	}
	by.must(t, "suppression", "remove", "ana@example.com", "--company", "Acme", "--note", "changed her mind")
	audit := by.must(t, "audit", "list", "--action", "suppression")
	for _, want := range []string{"suppression.add", "asked on the phone", "suppression.reveal", "suppression.remove", "changed her mind", "address=a***@e***.com"} {
		if !strings.Contains(audit, want) {
			t.Errorf("%q is missing in\n%s", want, audit)
		}
	}
	if n := strings.Count(audit, "\n"); n != 4 || strings.Contains(audit, "ana@") {
		t.Errorf("%d lines:\n%s", n, audit)
	}
}

type importedView struct {
	Lines, Suppressed, Refused, OtherReasons, ChangedNotes int
	Faults                                                 []struct {
		Line          int
		Code, Message string
	}
}

// Files as other systems export them; an invalid line does not affect the others.
func TestSuppressionImport(t *testing.T) {
	t.Parallel()
	tenant, _, d := newTenant(t)
	importing := func(o operator, args ...string) (v importedView, got outcome) {
		t.Helper()
		got = o.run(t, append([]string{"suppression", "import", "--json"}, args...)...)
		if err := json.Unmarshal([]byte(got.stdout), &v); err != nil {
			t.Fatalf("%+v: %v", got, err)
		}
		return v, got
	}
	v, got := importing(tenant, file(t, "b.txt", "\ufeffa@example.com\r\n\r\n# a comment\n  b@example.com \nnobody\n"), "--reason", "BOUNCE")
	if v.Lines != 3 || v.Suppressed != 2 || v.Refused != 1 || len(v.Faults) != 1 || v.Faults[0].Line != 5 || v.Faults[0].Code != "INVALID_EMAIL" ||
		got.code != ctl.ExitFailed || got.stderr != "gatewayctl: 1 line was rejected\n" {
		t.Errorf("%+v %+v", v, got)
	}
	v, got = importing(tenant, file(t, "u.csv", "Nome;E-mail;Reason;Note\nJo\xe3o;c@example.com;complaint;spam\nAna;d@example.com;;\n;\"e@example.com\n"), "--note", "old system")
	if v.Suppressed != 2 || v.Refused != 1 || v.Faults[0].Code != "UNCLOSED_QUOTE" || v.Faults[0].Line != 4 || got.code != ctl.ExitFailed {
		t.Errorf("%+v %+v", v, got)
	}
	if n := count(t, d, `SELECT count(*) FROM suppressions WHERE (address, reason, coalesce(note, '')) IN (('a@example.com', 'BOUNCE', ''), ('b@example.com', 'BOUNCE', ''),
		('c@example.com', 'COMPLAINT', 'spam'), ('d@example.com', 'MANUAL', 'old system'))`); n != 4 {
		t.Errorf("%d of 4 are suppressed", n)
	}
	// A provider's export of bounces: the reason is the server's answer.
	long := strings.Repeat("ç", 250)
	bounces := file(t, "bounces.csv", "created,email,reason,status,note\n1,n@example.com,550 5.1.1 no such user,5.1.1,\n2,o@example.com,\"550 a\nb\",5.0.0,known\n3,p@example.com,"+
		long+",,\n4,q@example.com, complaint ,,\"one\ntwo\"\n5,r@example.com,,,"+long+"\n")
	v, got = importing(tenant, bounces, "--reason", "BOUNCE")
	if v.Suppressed != 5 || v.Refused != 0 || v.OtherReasons != 3 || v.ChangedNotes != 3 || got.code != ctl.ExitOK {
		t.Errorf("bounces: %+v %+v", v, got)
	}
	if n := count(t, d, `SELECT count(*) FROM suppressions WHERE (address, reason, note) IN (('n@example.com', 'BOUNCE', '550 5.1.1 no such user'), ('o@example.com', 'BOUNCE', 'known'),
		('p@example.com', 'BOUNCE', repeat('ç', 199) || '…'), ('q@example.com', 'COMPLAINT', 'one two'), ('r@example.com', 'BOUNCE', repeat('ç', 199) || '…'))`); n != 5 {
		t.Errorf("%d of 5 bounces are suppressed with their notes", n)
	}
	if text := tenant.run(t, "suppression", "import", bounces).stdout; strings.Count(text, "3 lines have a reason that is none of UNSUBSCRIBE") != 1 || strings.Count(text, "3 notes were changed") != 1 {
		t.Error(text)
	}
	utf16 := func(text string) string {
		var b strings.Builder
		for _, c := range []byte(text) {
			b.Write([]byte{c, 0})
		}
		return b.String()
	}
	v, got = importing(tenant, file(t, "wide.txt", "\xff\xfe"+utf16("f@example.com\r\ng@example.com\r\n")))
	if v.Lines != 2 || v.Suppressed != 2 || got.code != ctl.ExitOK {
		t.Errorf("UTF-16: %+v %+v", v, got)
	}
	dos := file(t, "dos.csv", "Endere\x87o de e-mail;Note\nh@example.com;n\x8eo\n")
	if got := tenant.run(t, "suppression", "import", dos); got.code != ctl.ExitFailed || !strings.Contains(got.stderr, "line 1:") || !strings.Contains(got.stderr, "cp850") {
		t.Errorf("MS-DOS without encoding: %+v", got)
	}
	v, got = importing(tenant, dos, "--encoding", "cp850")
	if v.Suppressed != 1 || got.code != ctl.ExitOK {
		t.Errorf("MS-DOS: %+v %+v", v, got)
	}
	// The line ends of old Macs, of a file and of standard input.
	old := "i@example.com\r\r# a comment\rj@example.com\rnobody\rk@example.com"
	tenant.stdin = old + "\r"
	for _, from := range []string{file(t, "mac.txt", old), "-"} {
		v, got = importing(tenant, from)
		if v.Lines != 4 || v.Suppressed != 3 || v.Refused != 1 || v.Faults[0].Line != 5 {
			t.Errorf("CR: %+v %+v", v, got)
		}
	}
	tenant.stdin = "l@example.com\r\n" + strings.Repeat("x", 64<<10) + "\r\n" + strings.Repeat("y", 65<<10) + "\nm@example.com\n"
	if got := tenant.run(t, "suppression", "import", "-"); got.code != ctl.ExitFailed || !strings.Contains(got.stderr, "line 3 is longer than 65536 bytes") {
		t.Errorf("a long line: %+v", got)
	}
	var many strings.Builder
	for i := range 250 {
		fmt.Fprintf(&many, "user%d@example.com\n%d\n", i, i)
	}
	tenant.stdin = many.String()
	v, got = importing(tenant, "-")
	if v.Lines != 500 || v.Suppressed != 250 || v.Refused != 250 || len(v.Faults) != 100 {
		t.Errorf("%d lines, %d suppressed, %d refused, %d faults listed: %+v", v.Lines, v.Suppressed, v.Refused, len(v.Faults), got.stderr)
	}
	text := tenant.run(t, "suppression", "import", "-").stdout
	if !strings.HasPrefix(text, "250 of 500 lines are suppressed.\nline ") || !strings.HasSuffix(text, "and 150 more\n") {
		t.Error(text)
	}
	// A fatal error stops the import and reports how many lines were imported.
	tenant.env["API_KEY"] = "gw_live_abc_def"
	if got := tenant.run(t, "suppression", "import", "-"); got.code != ctl.ExitFailed || !strings.Contains(got.stderr, "UNAUTHORIZED") ||
		!strings.Contains(got.stderr, "0 addresses were suppressed before that; import the file again for the rest") {
		t.Errorf("%+v", got)
	}
}
