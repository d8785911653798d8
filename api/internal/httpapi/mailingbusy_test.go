package httpapi_test

import (
	"net/http"
	"testing"
)

// Another session has locked the company's quotas, which a mailing is checked against when its last line is
// written: the database is not unavailable, and the upload can be repeated.
func TestMailing_QuotasLocked(t *testing.T) {
	t.Parallel()
	g := start(t, nil)
	release := g.hold(t, `SELECT FROM quota_totals WHERE company_id = $1 FOR UPDATE`, g.Company)
	r := g.upload(t, mailingForm(), nil)
	if r.Status != http.StatusConflict || r.problem(t).Code != "AGGREGATE_BUSY" || r.Header.Get("Retry-After") == "" {
		t.Errorf("%d %s", r.Status, r.Body)
	}
	g.leavesNothing(t, "a mailing whose company's quotas are locked")
	release()
	g.mail(t, mailingForm())
}
