package ctl_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"email-gateway/api/internal/ctl"
	"email-gateway/shared/blob"
	"email-gateway/shared/store/installation"
)

// A copy of a database becomes an installation that sends nothing, delivers no webhook and refuses the storage of the
// original. It is refused while programs run, and then changes nothing.
func TestInstallation_Detach(t *testing.T) {
	t.Parallel()
	tenant, by, d := newTenant(t)
	var hook struct{ ID string }
	tenant.unmarshal(t, &hook, "webhook", "create", "https://erp.acme.example/hooks")
	var broken struct{ ID string }
	tenant.unmarshal(t, &broken, "webhook", "create", "https://old.acme.example/hooks")
	tenant.must(t, "webhook", "disable", broken.ID)
	owner, url := installation.New(d.Store.DB()), "file://"+t.TempDir()
	open := func(o blob.Options) *blob.Bucket {
		b, err := blob.Open(t.Context(), url, o)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = b.Close() })
		return b
	}
	if err := open(blob.Options{Owner: owner, Claim: owner}).Put(t.Context(), "files/a", strings.NewReader("x")); err != nil {
		t.Fatal(err)
	}
	original, _, err := owner.Installation(t.Context())
	if err != nil {
		t.Fatal(err)
	}

	detach := []string{"installation", "detach", "--reason", "restore drill"}
	if err := d.Store.ReportStatus(t.Context(), "worker", "one", time.Now(), map[string]any{}); err != nil {
		t.Fatal(err)
	}
	if got := by.run(t, detach...); got.code != ctl.ExitFailed || !strings.Contains(got.stderr, "nothing was changed") {
		t.Errorf("while a worker runs: %+v", got)
	}
	const harmless = `SELECT (SELECT count(*) FROM provider_gate WHERE held_reason = 'restore drill')
		+ (SELECT count(*) FROM webhook_endpoints WHERE status = 'DISABLED' AND disabled_reason = 'OPERATOR')
		+ (SELECT count(*) FROM operator_audit WHERE action = 'installation.detach' AND reason = 'restore drill')`
	if n := count(t, d, harmless); n != 0 {
		t.Errorf("%d changes while a worker runs", n)
	}
	d.Run(t, `UPDATE process_status SET updated_at = now() - interval '1 minute'`)

	var done installation.Detached
	by.decode(t, &done, detach...)
	now, marked, err := owner.Installation(t.Context())
	if err != nil || marked || now == original || done != (installation.Detached{ID: now, Before: original, Webhooks: 1}) {
		t.Errorf("%+v, now %s, marked: %v, %v", done, now, marked, err)
	}
	if n := count(t, d, harmless); n != 3 {
		t.Errorf("%d of 3 changes", n)
	}
	if refused := tenant.run(t, "webhook", "enable", hook.ID); refused.code != ctl.ExitFailed {
		t.Errorf("the company enables its endpoint: %+v", refused)
	}
	for program, o := range map[string]blob.Options{"dispatcher": {Owner: owner}, "api": {Owner: owner, Claim: owner}} {
		if err := open(o).Delete(t.Context(), "files/a"); !errors.Is(err, blob.ErrUnavailable) {
			t.Errorf("%s deletes a file of the original: %v", program, err)
		}
	}

	// Mailings have no deadline: they are cancelled, as in OPERATIONS.md.
	var company uuid.UUID
	if err := d.SQL.QueryRowContext(t.Context(), `SELECT id FROM companies`).Scan(&company); err != nil {
		t.Fatal(err)
	}
	d.Mailing(t, company, 1, nil)
	const openMailings = `FROM mailings WHERE status NOT IN ('COMPLETED', 'CANCELLED') AND entries_deleted_at IS NULL`
	var mailing string
	if err := d.SQL.QueryRowContext(t.Context(), `SELECT id `+openMailings).Scan(&mailing); err != nil {
		t.Fatal(err)
	}
	by.must(t, "company", "cancel-mailing", mailing, "--reason", "copy of the database")
	if n := count(t, d, `SELECT count(*) `+openMailings); n != 0 {
		t.Errorf("%d mailings are open", n)
	}

	// Repeated, as after a lost answer: the undo needs the id of the original.
	var again installation.Detached
	by.decode(t, &again, detach...)
	if done.Repeated = true; again != done {
		t.Errorf("repeated: %+v, want %+v", again, done)
	}

	// Undo, as in OPERATIONS.md. The endpoint that its company has disabled remains disabled.
	d.Run(t, `UPDATE installation SET storage_marked_at = NULL, id =
		(SELECT (details->>'before')::uuid FROM operator_audit WHERE action = 'installation.detach' ORDER BY at DESC LIMIT 1)`)
	var enable string
	if err := d.SQL.QueryRowContext(t.Context(), `SELECT format('gatewayctl company webhook enable %s %s', company_id, id)
		FROM webhook_endpoints WHERE disabled_at = (SELECT max(at) FROM operator_audit WHERE action = 'installation.detach')`).Scan(&enable); err != nil {
		t.Fatal(err)
	}
	by.must(t, strings.Fields(enable)[1:]...)
	if now, _, err := owner.Installation(t.Context()); err != nil || now != original {
		t.Errorf("%s, %v; want the id %s again", now, err, original)
	}
	if n := count(t, d, `SELECT count(DISTINCT coalesce(disabled_reason, 'none')) FROM webhook_endpoints WHERE disabled_reason IS DISTINCT FROM 'OPERATOR'`); n != 2 {
		t.Error("want one endpoint enabled, and one disabled by its company")
	}
	if text := by.must(t, detach...); !strings.Contains(text, "1 webhook endpoint was disabled") || strings.Contains(text, "nothing was changed") {
		t.Error(text)
	}
	by.must(t, "lane", "resume", "--all")
	if text := by.must(t, detach...); strings.Contains(text, "nothing was changed") {
		t.Error("after it has sent:", text)
	}

	// A copy of this detached copy has its data, and needs an id of its own.
	d.Run(t, `UPDATE operator_audit SET details = details || '{"database": "of the copied database"}'`)
	if text := by.must(t, detach...); strings.Contains(text, "nothing was changed") {
		t.Error("a copy of a detached copy:", text)
	}
	if text := by.must(t, detach...); !strings.Contains(text, "nothing was changed") {
		t.Error("repeated in the copy:", text)
	}
}
