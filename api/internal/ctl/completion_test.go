package ctl_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"email-gateway/api/internal/ctl"
)

// offered returns the completions of the last word.
func (o operator) offered(t *testing.T, words ...string) []string {
	t.Helper()
	got := o.run(t, append([]string{"__completeNoDesc"}, words...)...)
	if got.code != ctl.ExitOK {
		t.Fatalf("%q: %+v", words, got)
	}
	lines := strings.Split(strings.TrimSpace(got.stdout), "\n")
	return lines[:len(lines)-1] // the last line is the directive
}

// Commands, flags with few values, companies and ids are completed.
func TestCompletion(t *testing.T) {
	t.Parallel()
	tenant, by, d := newTenant(t)
	by.must(t, "company", "create", "--name", "Beta Ltda", "--default-from", "ola@beta.example")
	acme, err := d.Store.FindCompany(t.Context(), "Acme")
	if err != nil {
		t.Fatal(err)
	}
	deadLetter := giveUp(t, d, acme.ID)
	mailing, email := tenant.upload(t), tenant.accepted(t)
	keys, err := d.Store.APIKeys(t.Context(), acme.ID)
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		as    operator
		typed string // words, the last one to be completed
		want  []string
	}{
		{operator{}, "comp", []string{"company", "completion"}},
		{operator{}, "key create --env ", []string{"live", "test", "dev"}},
		{operator{}, "key create --scopes emails:read,deadletters:write,emails:send,mailings:read,mailings:write,", []string{
			"emails:read,deadletters:write,emails:send,mailings:read,mailings:write,recipients:write",
			"emails:read,deadletters:write,emails:send,mailings:read,mailings:write,suppressions:write",
			"emails:read,deadletters:write,emails:send,mailings:read,mailings:write,templates:write",
			"emails:read,deadletters:write,emails:send,mailings:read,mailings:write,templates:read",
			"emails:read,deadletters:write,emails:send,mailings:read,mailings:write,webhooks:read",
			"emails:read,deadletters:write,emails:send,mailings:read,mailings:write,webhooks:write",
		}},
		{operator{}, "key create --scopes emails:read,rec", []string{"emails:read,recipients:write"}},
		{operator{}, "suppression add x --reason ", []string{"UNSUBSCRIBE", "BOUNCE", "COMPLAINT", "MANUAL"}},
		{operator{}, "email show --as ", []string{"operator", "tenant"}},
		{by, "company show ", []string{"Acme", "Beta Ltda"}},
		{by, "company suspend B", []string{"Beta Ltda"}},
		{by, "lane pause --company A", []string{"Acme"}},
		{by, "key revoke ", []string{"--reason", keys[0].KeyID}}, // required flags are offered too
		{by, "dlq discard ", []string{"--reason", deadLetter}},
		{tenant, "mailing pause ", []string{mailing}},
		{tenant, "email cancel " + email[:28], []string{email}},
		// If nothing matches or the source is unreachable, nothing is offered.
		{by, "company show Acme ", nil},
		{operator{}, "company show ", nil},
		{operator{}, "mailing show ", nil},
		{operator{databaseURL: "postgres://127.0.0.1:1/x"}, "company show ", nil},
		{operator{env: map[string]string{"API_KEY": "x", "API_URL": "http://127.0.0.1:1"}}, "email show ", nil},
	} {
		got := tt.as.offered(t, strings.Split(tt.typed, " ")...)
		if strings.Join(got, "|") != strings.Join(tt.want, "|") {
			t.Errorf("%q is completed to %q, want %q", tt.typed, got, tt.want)
		}
	}
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		if got := (operator{}).run(t, "completion", shell); got.code != ctl.ExitOK || !strings.Contains(got.stdout, "gatewayctl") {
			t.Errorf("completion %s: exit code %d", shell, got.code)
		}
	}
}

// Every action that the store writes to the audit log is completed, with its group.
func TestCompletion_AuditActions(t *testing.T) {
	t.Parallel()
	by, _ := newOperator(t)
	offered := by.offered(t, "audit", "list", "--action", "")
	const store = "../../../shared/store"
	written := regexp.MustCompile(`(?:Action: |Action = |by, |change\(|act\()"(([a-z]+)\.[a-z-]+)"`)
	found := 0
	err := filepath.WalkDir(store, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		source, err := os.ReadFile(path)
		for _, action := range written.FindAllStringSubmatch(string(source), -1) {
			found++
			if !slices.Contains(offered, action[1]) || !slices.Contains(offered, action[2]) {
				t.Errorf("%s: --action does not complete %s or %s", path, action[1], action[2])
			}
		}
		return err
	})
	if err != nil || found < 10 {
		t.Errorf("%d actions found in %s: %v", found, store, err)
	}
}
