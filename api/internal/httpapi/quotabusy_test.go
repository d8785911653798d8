package httpapi_test

import (
	"net/http"
	"testing"

	"email-gateway/shared/store/quota"
)

// A program's open transaction holds the company's quotas. Requests close to a quota get a conflict that says when to
// repeat them, with and without a key, and succeed after the transaction.
func TestQuota_LockedByAProgram(t *testing.T) {
	t.Parallel()
	g := start(t, nil)
	for _, q := range []quota.Quota{quota.EmailsPerDay, quota.Suppressions, quota.Recipients} {
		g.limit(t, q, 10)
	}
	calls := []call{
		{Method: http.MethodPost, Path: "/v1/email/send", Body: emailBody(nil)},
		{Method: http.MethodPost, Path: "/v1/email/send", Body: emailBody(nil), Header: map[string]string{"Idempotency-Key": "k"}},
		{Method: http.MethodPost, Path: "/v1/suppressions", Body: `{"address": "ana@example.com"}`},
		{Method: http.MethodPost, Path: "/v1/recipients", Body: `{"recipients": [{"externalId": "A", "email": "ana@example.com", "nome": "Ana"}]}`},
	}
	release := g.hold(t, `SELECT email_gateway_hold_quotas($1)`, g.Company)
	for _, c := range calls {
		if r := g.do(t, c); r.Status != http.StatusConflict || r.problem(t).Code != "AGGREGATE_BUSY" || r.Header.Get("Retry-After") == "" {
			t.Errorf("%s while the quotas are held: %d %s", c.Path, r.Status, r.Body)
		}
	}
	release()
	for _, c := range calls {
		if r := g.do(t, c); r.Status >= 300 {
			t.Errorf("%s after the transaction: %d %s", c.Path, r.Status, r.Body)
		}
	}
}
