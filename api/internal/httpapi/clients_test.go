package httpapi_test

import (
	"bytes"
	"os/exec"
	"strings"
	"testing"
)

// TestContract_GeneratedClients: the clients that oapi-codegen and openapi-typescript make of
// openapi.yaml with their default flags compile, and send an email. scripts/openapi.sh installs
// both generators, and Node where there is none.
func TestContract_GeneratedClients(t *testing.T) {
	t.Parallel()
	g := start(t, nil)
	for _, language := range []string{"go", "typescript"} {
		t.Run(language, func(t *testing.T) {
			t.Parallel()
			program := strings.Fields(output(t, "../../../scripts/openapi.sh", "client", language, t.TempDir()))
			id := output(t, program[0], append(program[1:], g.URL, g.Key.String())...)
			var externalID string
			err := g.SQL.QueryRowContext(t.Context(), `SELECT payload #>> '{recipient,externalId}' FROM email_outbox WHERE id::text = $1`, id).Scan(&externalID)
			if err != nil || externalID != strings.ToUpper(language) {
				t.Errorf("%s: %q %v", id, externalID, err)
			}
		})
	}
}

// output is what a command prints, without the last line end.
func output(t *testing.T, name string, args ...string) string {
	t.Helper()
	var stdout, stderr bytes.Buffer
	command := exec.CommandContext(t.Context(), name, args...)
	command.Stdout, command.Stderr = &stdout, &stderr
	if err := command.Run(); err != nil {
		t.Fatalf("%s %s: %v\n%s%s", name, strings.Join(args, " "), err, stdout.String(), stderr.String())
	}
	return strings.TrimSpace(stdout.String())
}
