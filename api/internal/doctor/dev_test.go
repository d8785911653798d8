package doctor_test

import (
	"strings"
	"testing"

	"email-gateway/api/internal/doctor"
)

// With dev.sh the advice refers to its scripts and not to production.
func TestExamine_UnderDevScript(t *testing.T) {
	t.Parallel()
	d, p := healthy(t)
	if _, err := d.SQL.ExecContext(t.Context(), `UPDATE process_status SET updated_at = now() - interval '1 minute' WHERE service = 'worker'`); err != nil {
		t.Fatal(err)
	}
	p.Environ = []string{"DATABASE_URL=" + d.URL, "DEV_DIR=/home/ana/gateway/.local"}
	advice := map[string]string{}
	for _, f := range doctor.Examine(t.Context(), p).Findings {
		if f.Status == doctor.OK {
			continue
		}
		advice[f.Check] = f.Advice
		if strings.Contains(f.Advice, "docker compose") || f.Status == doctor.Failure && !strings.Contains(f.Advice, "./scripts/") {
			t.Errorf("%s %s: %s", f.Status, f.Check, f.Advice)
		}
	}
	if !strings.Contains(advice["worker"], "./scripts/dev.sh") || !strings.Contains(advice["worker"], "/home/ana/gateway/.local/log/worker.log") {
		t.Errorf("worker: %q", advice["worker"])
	}
	if !strings.Contains(advice["settings"], "./scripts/dev.sh") {
		t.Errorf("settings: %q", advice["settings"])
	}
}
