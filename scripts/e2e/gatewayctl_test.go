package e2e_test

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"email-gateway/scripts/local/programs"
)

// runAsTenant runs gatewayctl with the key of the system, without access to the database.
func runAsTenant(s *system, args ...string) (out string, code int) {
	s.t.Helper()
	environ := programs.Environ(map[string]string{"API_URL": "http://" + s.api.addr, "API_KEY": s.key})
	text, err := programs.Output(s.t.Context(), environ, filepath.Join(binDir, "gatewayctl"), args...)
	var ended *exec.ExitError
	switch {
	case errors.As(err, &ended):
		return string(text) + string(ended.Stderr), ended.ExitCode()
	case err != nil:
		s.t.Fatal(err)
	}
	return string(text), 0
}

// A tenant uses only gatewayctl: a mailing and emails, each followed to its end.
func TestGatewayctl_Tenant(t *testing.T) {
	t.Parallel()
	s := startSystem(t, bulk(t, brokerURL(t)))
	sheet := newSpreadsheet(t, 300)
	path := filepath.Join(t.TempDir(), "clientes.csv")
	if err := os.WriteFile(path, sheet.file, 0o600); err != nil {
		t.Fatal(err)
	}
	create := []string{"mailing", "create", "--file", path, "--subject", templates["subject"], "--html", templates["html"], "--watch", "--json"}
	out, code := runAsTenant(s, create...)
	var ended mailingView
	if err := json.Unmarshal([]byte(out), &ended); err != nil || code != 0 || ended.Status != "COMPLETED" || ended.Sent != len(sheet.people) {
		t.Fatalf("exit code %d, %v: %s", code, err, out)
	}
	if again, code := runAsTenant(s, create...); code != 0 || !strings.Contains(again, ended.MailingID) {
		t.Errorf("the same again: exit code %d, %s", code, again)
	}
	send := func(to string) (string, int) {
		return runAsTenant(s, "email", "send", "--to", to, "--external-id", "C-1", "--subject", "Olá", "--html", "<p>Olá</p>", "--watch")
	}
	if out, code := send("ana@example.com"); code != 0 || !strings.Contains(out, " is SENT\n") {
		t.Errorf("exit code %d, %s", code, out)
	}
	if out, code := send("sim-bad-request@example.com"); code != 1 || !strings.Contains(out, " is FAILED\n") || !strings.Contains(out, "gatewayctl: the email is FAILED\n") {
		t.Errorf("exit code %d, %s", code, out)
	}
	if out, code := runAsTenant(s, "suppression", "add", "bea@example.com"); code != 0 {
		t.Errorf("exit code %d, %s", code, out)
	}
	if out, code := send("bea@example.com"); code != 1 || !strings.Contains(out, " is SUPPRESSED\n") {
		t.Errorf("exit code %d, %s", code, out)
	}
}
