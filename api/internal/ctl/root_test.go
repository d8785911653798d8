package ctl_test

import (
	"errors"
	"regexp"
	"strings"
	"testing"

	"email-gateway/api/internal/ctl"
	"email-gateway/api/internal/ctl/goldentest"
	"email-gateway/shared/service"
)

// noID is the id of no object.
const noID = "01a1fe26-7c3d-7e4f-8a5b-6c7d8e9f0a1b"

// commands lists all commands.
func commands() []string {
	return []string{
		"", "company", "company create", "company list", "company show", "company suspend", "company resume", "company retention",
		"company quota", "company quota show", "company quota set", "company usage",
		"company webhook", "company webhook list", "company webhook disable", "company webhook enable", "company mailings", "company cancel-mailing",
		"company reputation", "company reputation show", "company reputation set", "company reputation resume",
		"domain", "domain add", "domain remove", "domain list",
		"program", "program list", "program allow", "program revoke",
		"key", "key create", "key list", "key rotate", "key revoke", "encryption", "encryption status", "encryption rotate",
		"email", "email send", "email send-batch", "email list", "email show", "email explain", "email cancel", "email retry",
		"mailing", "mailing create", "mailing list", "mailing show", "mailing watch", "mailing entries", "mailing rows", "mailing verdicts",
		"mailing move", "mailing start", "mailing pause", "mailing resume", "mailing cancel", "mailing retry-failed",
		"file", "file upload", "file list",
		"template", "template pull", "template push", "template preview",
		"usage", "webhook", "webhook list", "webhook show", "webhook create", "webhook update", "webhook delete", "webhook rotate-secret", "webhook enable",
		"webhook disable", "webhook test", "webhook deliveries", "webhook retry", "webhook replay", "events",
		"suppression", "suppression list", "suppression add", "suppression remove", "suppression import",
		"audit", "audit list", "doctor", "person", "person export", "person erase",
		"dlq", "dlq list", "dlq show", "dlq retry", "dlq discard",
		"lane", "lane pause", "lane resume", "lane list",
		"breaker", "breaker show",
		"installation", "installation detach",
	}
}

// Help needs no database. The golden file makes every change of a help text visible.
func TestHelp(t *testing.T) {
	t.Parallel()
	var all strings.Builder
	for _, command := range commands() {
		args := append(strings.Fields(command), "--help")
		got := operator{}.run(t, args...)
		if got.code != ctl.ExitOK || got.stderr != "" {
			t.Errorf("gatewayctl %s: exit code %d, %s", strings.Join(args, " "), got.code, got.stderr)
		}
		if !strings.Contains(got.stdout, "\nExamples:\n") {
			t.Errorf("gatewayctl %s: no example", strings.Join(args, " "))
		}
		for line := range strings.Lines(got.stdout) {
			if len([]rune(line)) > 110 {
				t.Errorf("gatewayctl %s: too long for a terminal: %s", strings.Join(args, " "), line)
			}
		}
		all.WriteString("$ gatewayctl " + strings.Join(args, " ") + "\n" + got.stdout + "\n")
	}
	goldentest.Compare(t, "help", all.String())
}

func TestVersion(t *testing.T) {
	t.Parallel()
	if got := (operator{}).run(t, "--version"); got.code != ctl.ExitOK || got.stdout != "gatewayctl "+service.Version()+"\n" || got.stderr != "" {
		t.Errorf("%+v", got)
	}
}

// Every command in a help text is in the list above.
func TestHelp_ListsEveryCommand(t *testing.T) {
	t.Parallel()
	for _, parent := range commands() {
		_, listed, found := strings.Cut(operator{}.run(t, append(strings.Fields(parent), "--help")...).stdout, "\nCommands:\n")
		if !found {
			continue
		}
		listed, _, _ = strings.Cut(listed, "\n\n")
		for _, match := range regexp.MustCompile(`(?m)^  ([\w-]+)`).FindAllStringSubmatch(listed, -1) {
			path := strings.TrimSpace(parent + " " + match[1])
			if path != "help" && path != "completion" && !contains(commands(), path) {
				t.Errorf("gatewayctl %s has no test", path)
			}
		}
	}
}

func contains(all []string, one string) bool {
	for _, s := range all {
		if s == one {
			return true
		}
	}
	return false
}

// Invalid usage exits with 2, reports the mistake, refers to --help and prints nothing on
// standard output.
func TestUsage(t *testing.T) {
	t.Parallel()
	o, _ := newOperator(t)
	o.must(t, "company", "create", "--name", "Acme", "--default-from", "billing@acme.example")
	tests := []struct{ args, want string }{
		{"", "gatewayctl needs a command"},
		{"company", "gatewayctl company needs a command"},
		{"compny", `unknown command "compny" for "gatewayctl": did you mean company?`},
		{"company lst", `unknown command "lst" for "gatewayctl company": did you mean list?`},
		{"completion tcsh", `unknown command "tcsh" for "gatewayctl completion"`},
		{"company list --jsn", "unknown flag: --jsn"},
		{"company list extra", "1 argument too many"},
		{"company create", "--default-from and --name are missing"},
		{"company create --name Acme --default-from nobody", `--default-from "nobody" must be an address, or a name and an address: "Acme <billing@acme.example>"`},
		{"company create --name Beta --default-from a@localhost", `--default-from "a@localhost" `},
		{"company create --name Beta --default-from josé@beta.example", `--default-from "josé@beta.example" must be ASCII before the @`},
		{"company create --name Beta --default-from a@beta.example --domain x", `"x" is not a valid sender domain`},
		{"company show", "COMPANY is missing"},
		{"company suspend Acme", "--reason is missing"},
		{"company suspend Acme --reason=", "--reason must not be empty"},
		{"domain add --company Acme", "DOMAIN is missing"},
		{"domain add acme.example", "--company is missing"},
		{"domain remove --company Acme acme.example", "--reason is missing"},
		{"domain add --company Acme *.acme.example", `"*.acme.example" is not a valid sender domain`},
		{"domain add --company Acme -- -acme.example", `"-acme.example" is not a valid sender domain`},
		{"domain add --company Acme acme.example.", `"acme.example." is not a valid sender domain`},
		{"domain add --company Acme https://acme.example", `"https://acme.example" is not a valid sender domain`},
		{"domain add --company Acme 127.0.0.1", `"127.0.0.1" is not a valid sender domain`},
		{"program allow --company Acme", "ROLE is missing"},
		{"program allow recruiting", "--company is missing"},
		{"program allow gateway_program --company Acme", "gateway_program is the role of all programs"},
		{"program revoke recruiting --company Acme", "--reason is missing"},
		{"key create", "--company is missing"},
		{"key create --company Acme --env production", `--env "production" must be live, test, dev`},
		{"key create --company Acme --scopes emails:delete", `--scopes: unknown scope "emails:delete"; the scopes are emails:send, emails:read,`},
		{"key create --company Acme --scopes=", "--scopes must not be empty"},
		{"key create --company Acme --rate -1", "--rate must be 0 (no limit) or more"},
		{"key create --company Acme --burst 0", "--burst at least 1 if --rate is set"},
		{"key create --company Acme --rate many", `invalid argument "many" for "--rate" flag`},
		{"key create --company Acme --name=", "--name must not be empty"},
		{"key revoke", "KEYID is missing"},
		{"key revoke x", "--reason is missing"},
		{"key revoke x --reason=", "--reason must not be empty"},
		{"email show", "ID is missing"},
		{"email show 42", `"42" is not an email id: give the outboxId of the 202 response`},
		{"lane pause --company Acme", "--reason is missing"},
		{"lane pause --all --reason=", "--reason must not be empty"},
		{"lane pause --reason x", "give --company COMPANY or --all"},
		{"lane pause --all --company Acme --reason x", "--all selects every lane"},
		{"lane resume", "give --company COMPANY or --all"},
		{"lane resume --company Acme --queue email", `--queue "email" must be one of email:send:high, email:send,`},
		{"lane resume --company Acme --mailing 7", `--mailing "7" is not a mailing id`},
		{"lane list --queue email", `--queue "email" must be one of`},
		{"email explain 42", `"42" is not an email id`},
		{"dlq", "gatewayctl dlq needs a command"},
		{"dlq list --limit 0", "--limit must be 1 to 10000"},
		{"dlq list --since yesterday", `--since "yesterday" must be a duration ago, such as 90m or 36h`},
		{"dlq list --since -1h", `--since "-1h" must be`},
		{"dlq list --target email", `--target "email" must be email:send, mailing.process, recipients.upsert`},
		{"dlq list --mailing 42", `--mailing "42" is not a mailing id`},
		{"dlq retry --reason SES_MESSAGE_REJECTED --since 2h --yes", "--reason SES_MESSAGE_REJECTED looks like an error code: select by code with --code"},
		{"dlq show", "ID is missing"},
		{"audit list --operator ana", "--operator names the person running this command; use --by"},
		{"dlq show 42", `"42" is not a dead letter id: run ` + "`gatewayctl dlq list` to see them"},
		{"dlq retry 42", `"42" is not a dead letter id`},
		{"dlq retry", "give an ID, flags that select dead letters, or --all"},
		{"dlq discard --yes --reason x", "give an ID, flags that select dead letters, or --all"},
		{"dlq discard 42", "--reason is missing"},
		{"email cancel " + noID, "--reason must not be empty"},
		{"email cancel 42 --reason x", `"42" is not an email id`},
		{"email cancel - --as operator", "--reason must not be empty"},
		{"email cancel 42 --as god", `--as "god" must be operator or tenant`},
		{"email cancel 42 --as tenant", "API_KEY is not set"},
		{"email list", "--company is required: run"},
		{"email list --company Acme --status sent", `--status "sent" must be one of PENDING,`},
		{"email list --company Acme --since yesterday", `--since "yesterday" must be a duration ago`},
		{"email list --company Acme --limit 10001", "--limit must be 1 to 10000"},
		{"company resume Acme --operator= --reason x", "--operator must not be empty"},
		{"company resume Acme --reason " + strings.Repeat("x", 501), "--reason must be one line of at most 500 characters"},
		{"company resume Acme --operator " + strings.Repeat("x", 201), "--operator must be one line of at most 200 characters"},
		{"audit list --since x", `--since "x" must be a duration ago`},
		{"audit list --limit 0", "--limit must be"},
		{"dlq retry 42 --all", "give either an ID or flags that select dead letters, not both"},
		{"dlq retry 42 43", "1 argument too many"},
		{"dlq retry --all --rate 1001", "--rate must be 1 to 1000"},
		{"dlq retry --all --limit -1", "--limit must be 0 (all) or more"},
	}
	for _, tt := range tests {
		t.Run(tt.args, func(t *testing.T) {
			got := o.run(t, strings.Fields(tt.args)...)
			if got.code != ctl.ExitUsage || got.stdout != "" {
				t.Errorf("exit code %d, want 2; it printed %q", got.code, got.stdout)
			}
			if !strings.Contains(got.stderr, "gatewayctl: "+tt.want) && !strings.Contains(got.stderr, tt.want) {
				t.Errorf("standard error is\n%swant %s", got.stderr, tt.want)
			}
			if !strings.Contains(got.stderr, "--help.\n") {
				t.Errorf("standard error does not mention --help:\n%s", got.stderr)
			}
		})
	}
}

// A flag with an empty value is refused before anything is read or changed. It does not select everything, and it does not
// drop a limit.
func TestUsage_EmptyValues(t *testing.T) {
	t.Parallel()
	var o operator
	for _, tt := range []struct {
		args []string
		flag string
	}{
		{[]string{"dlq", "retry", "--company", "", "--code", "SES_TIMEOUT", "--yes"}, "company"},
		{[]string{"dlq", "retry", "--company", "Acme", "--mailing", "", "--yes"}, "mailing"},
		{[]string{"dlq", "discard", "--company", "Acme", "--since", " ", "--reason", "x", "--yes"}, "since"},
		{[]string{"lane", "resume", "--company", "Acme", "--queue", ""}, "queue"},
		{[]string{"lane", "pause", "--company", "Acme", "--mailing", "", "--reason", "x"}, "mailing"},
		{[]string{"key", "create", "--company", "Acme", "--networks", ""}, "networks"},
		{[]string{"key", "create", "--company", "Acme", "--networks", " , "}, "networks"},
		{[]string{"key", "create", "--company", "Acme", "--expires", ""}, "expires"},
		{[]string{"suppression", "remove", "ana@example.com", "--company", "Acme", "--note", "n", "--reason", ""}, "reason"},
		{[]string{"audit", "list", "--company", ""}, "company"},
		{[]string{"email", "send", "--to", "ana@example.com", "--idempotency-key", ""}, "idempotency-key"},
		{[]string{"email", "send-batch", "emails.jsonl", "--idempotency-key", ""}, "idempotency-key"},
		{[]string{"webhook", "replay", noID, "--since", "2026-03-01T10:00:00Z", "--until", ""}, "until"},
		{[]string{"webhook", "create", "https://erp.acme.example/hooks", "--types", ""}, "types"},
		{[]string{"webhook", "update", noID, "--url", ""}, "url"},
		{[]string{"company", "retention", "Acme", "--logs", "", "--reason", "x"}, "logs"},
	} {
		t.Run(strings.Join(tt.args, " "), func(t *testing.T) {
			got := o.run(t, tt.args...)
			if got.code != ctl.ExitUsage || got.stdout != "" || !strings.Contains(got.stderr, "gatewayctl: --"+tt.flag+" must not be empty\n") {
				t.Errorf("%+v", got)
			}
		})
	}
	o.env = map[string]string{"API_KEY": "gw_test_a_b", "API_URL": "http://127.0.0.1:1"}
	if got := o.run(t, "webhook", "update", noID, "--types", ""); got.code != ctl.ExitFailed {
		t.Errorf("--types of an update: %+v", got)
	}
}

// A failure exits with 1 and reports what to do.
func TestFailures(t *testing.T) {
	t.Parallel()
	o, _ := newOperator(t)
	o.must(t, "company", "create", "--name", "Acme Ltda", "--default-from", "billing@acme.example")
	tests := []struct {
		args []string
		want string
	}{
		{
			[]string{"company", "create", "--name", "Acme Ltda", "--default-from", "a@b.example"},
			`a company named "Acme Ltda" already exists: choose another name, or run ` + "`gatewayctl company show 'Acme Ltda'`",
		},
		{[]string{"company", "show", "Acme"}, `company "Acme" not found: run ` + "`gatewayctl company list` to see all names and ids"},
		{[]string{"company", "suspend", noID, "--reason", "x"}, `company "` + noID},
		{[]string{"company", "resume", "acme ltda"}, `company "acme ltda" not found`},
		{[]string{"domain", "list", "--company", "x"}, `company "x" not found`},
		{[]string{"domain", "add", "--company", "x", "acme.example"}, `company "x" not found`},
		{
			[]string{"domain", "remove", "--company", "Acme Ltda", "other.example", "--reason", "x"},
			"Acme Ltda has no sender domain other.example: run `gatewayctl domain list --company 'Acme Ltda'` to see its domains",
		},
		{[]string{"key", "create", "--company", "x"}, `company "x" not found`},
		{[]string{"key", "list", "--company", "x"}, `company "x" not found`},
		{[]string{"key", "revoke", "nokey", "--reason", "x"}, "no key has this id: run `gatewayctl key list --company COMPANY` to see a company's keys"},
		{[]string{"lane", "list", "--company", "x"}, `company "x" not found`},
		{[]string{"lane", "resume", "--company", "x"}, `company "x" not found`},
		{
			[]string{"lane", "pause", "--company", "Acme Ltda", "--mailing", noID, "--reason", "x"},
			"no lane matches: run `gatewayctl lane list --company 'Acme Ltda'` to see the company's lanes",
		},
		{[]string{"email", "show", noID}, "email " + noID + " not found: check that it is the outboxId of a 202 response and that DATABASE_URL is the right database"},
		{[]string{"email", "explain", noID}, "email " + noID + " not found"},
		{[]string{"dlq", "list", "--company", "x"}, `company "x" not found`},
		{[]string{"dlq", "show", noID}, "dead letter " + noID + " not found: those of emails are kept for 7 days"},
		{[]string{"dlq", "discard", noID, "--reason", "x"}, "dead letter " + noID + " not found"},
	}
	for _, tt := range tests {
		t.Run(strings.Join(tt.args, " "), func(t *testing.T) {
			got := o.run(t, tt.args...)
			if got.code != ctl.ExitFailed || got.stdout != "" {
				t.Errorf("exit code %d, want 1; it printed %q", got.code, got.stdout)
			}
			if !strings.HasPrefix(got.stderr, "gatewayctl: "+tt.want) || strings.Count(got.stderr, "\n") != 1 {
				t.Errorf("standard error is\n%swant the one line\ngatewayctl: %s", got.stderr, tt.want)
			}
		})
	}
}

func TestDatabase_MissingOrNotMigrated(t *testing.T) {
	t.Parallel()
	if got := (operator{}).run(t, "company", "list"); got.code != ctl.ExitUsage || !strings.Contains(got.stderr, "DATABASE_URL is not set") {
		t.Errorf("without DATABASE_URL: exit code %d, %s", got.code, got.stderr)
	}

	unreachable := operator{databaseURL: "postgres://gateway:hunter2@127.0.0.1:1/gateway?sslmode=disable"}
	got := unreachable.run(t, "company", "list")
	if got.code != ctl.ExitFailed || !strings.Contains(got.stderr, "connection refused (is Postgres running?") || strings.Contains(got.stderr, "hunter2") {
		t.Errorf("unreachable database: exit code %d, %s", got.code, got.stderr)
	}

	o, d := newOperator(t)
	if _, err := d.SQL.ExecContext(t.Context(), "DROP TABLE process_status, dead_letters, sender_domains, api_keys CASCADE"); err != nil {
		t.Fatal(err)
	}
	o.must(t, "company", "list")
	for _, args := range [][]string{
		{"company", "create", "--name", "Acme", "--default-from", "a@acme.example"},
		{"key", "revoke", "x", "--reason", "x"},
	} {
		got := o.run(t, args...)
		if got.code != ctl.ExitFailed || !strings.Contains(got.stderr, "run `migrate up` with the same DATABASE_URL") || strings.Count(got.stderr, "\n") != 1 {
			t.Errorf("%v without tables: exit code %d, %s", args, got.code, got.stderr)
		}
	}
}

// brokenPipe fails every write.
type brokenPipe struct{}

func (brokenPipe) Write([]byte) (int, error) { return 0, errors.New("broken pipe") }

func TestOutput_BrokenPipe(t *testing.T) {
	t.Parallel()
	o, _ := newOperator(t)
	var stderr strings.Builder
	p := ctl.Program{Environ: []string{"DATABASE_URL=" + o.databaseURL}, Stdout: brokenPipe{}, Stderr: &stderr}
	if code := p.Run(t.Context(), []string{"company", "list"}); code != ctl.ExitFailed || !strings.Contains(stderr.String(), "broken pipe") {
		t.Errorf("exit code %d, %s", code, stderr.String())
	}
}
