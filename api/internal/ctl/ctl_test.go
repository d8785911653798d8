package ctl_test

import (
	"bytes"
	"encoding/json"
	"regexp"
	"strings"
	"testing"

	"email-gateway/api/internal/ctl"
	"email-gateway/shared/store/storetest"
)

// operator runs gatewayctl in this process. The login name is ana.
type operator struct {
	databaseURL string
	env         map[string]string // in addition to DATABASE_URL
	stdin       string
}

// newOperator creates a separate database.
func newOperator(t *testing.T) (operator, storetest.Database) {
	t.Helper()
	d := storetest.New(t)
	return operator{databaseURL: d.URL}, d
}

type outcome struct {
	code           int
	stdout, stderr string
}

func (o operator) run(t *testing.T, args ...string) outcome {
	t.Helper()
	var stdout, stderr bytes.Buffer
	environ := []string{"DATABASE_URL=" + o.databaseURL}
	for name, value := range o.env {
		environ = append(environ, name+"="+value)
	}
	code := ctl.Program{Environ: environ, Login: "ana", Stdin: strings.NewReader(o.stdin), Stdout: &stdout, Stderr: &stderr}.Run(t.Context(), args)
	return outcome{code, stdout.String(), stderr.String()}
}

// must runs a command that has to succeed and returns its output.
func (o operator) must(t *testing.T, args ...string) string {
	t.Helper()
	got := o.run(t, args...)
	if got.code != ctl.ExitOK || got.stderr != "" {
		t.Fatalf("gatewayctl %s: exit code %d\n%s", strings.Join(args, " "), got.code, got.stderr)
	}
	return got.stdout
}

// decode runs a command with --json and decodes its output, which must not contain
// unknown fields.
func (o operator) decode(t *testing.T, into any, args ...string) {
	t.Helper()
	decoder := json.NewDecoder(strings.NewReader(o.must(t, append(args, "--json")...)))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(into); err != nil {
		t.Fatalf("gatewayctl %s --json: %v", strings.Join(args, " "), err)
	}
	if decoder.More() {
		t.Fatalf("gatewayctl %s --json: more than one object", strings.Join(args, " "))
	}
}

// stable replaces values that differ between runs with constants of the same length.
func stable(text string) string {
	for _, replace := range []struct{ pattern, by string }{
		{`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`, "00000000-0000-0000-0000-000000000000"},
		{`gw_([a-z]+)_[a-z0-9]+_[a-z0-9]+`, "gw_${1}_KEYID_SECRET"},
		{`\b[a-z2-7]{16}\b`, "keyid00000000000"},
		{`\d{4}-\d{2}-\d{2} \d{2}:\d{2}:\d{2}(\.\d{3})?Z`, "2026-01-02 03:04:05${1}Z"},
		{`\.\d{3}Z`, ".000Z"},
	} {
		text = regexp.MustCompile(replace.pattern).ReplaceAllString(text, replace.by)
	}
	return text
}
