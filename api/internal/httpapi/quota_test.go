package httpapi_test

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"email-gateway/shared/store/quota"
	"email-gateway/shared/store/storetest"
)

// limit sets a limit of the company.
func (g *gateway) limit(tb testing.TB, q quota.Quota, most int64) {
	tb.Helper()
	if err := g.Store.SetQuotas(tb.Context(), storetest.Operator(), g.Company, map[quota.Quota]*int64{q: &most}); err != nil {
		tb.Fatal(err)
	}
}

// overQuota fails unless the reply reports the quota.
func overQuota(tb testing.TB, r reply, q quota.Quota, most, use float64) {
	tb.Helper()
	answer := r.json(tb)
	reset, hasReset := answer["reset"]
	if r.Status != http.StatusTooManyRequests || answer["code"] != "QUOTA_EXCEEDED" || answer["quota"] != string(q) || answer["limit"] != most || answer["use"] != use || !hasReset {
		tb.Errorf("%s: %d %s", q, r.Status, r.Body)
	}
	daily := strings.HasSuffix(string(q), "_per_day")
	if (reset != nil) != daily {
		tb.Errorf("%s: reset %v", q, reset)
	}
	if daily {
		at, err := time.Parse(time.RFC3339, fmt.Sprint(reset))
		after, convErr := strconv.Atoi(r.Header.Get("Retry-After"))
		if left := time.Until(at); err != nil || convErr != nil || left <= 0 || left > 24*time.Hour || time.Duration(after)*time.Second > left+2*time.Second {
			tb.Errorf("%s: reset %v, Retry-After %q", q, reset, r.Header.Get("Retry-After"))
		}
	} else if r.Header.Get("Retry-After") != "60" {
		tb.Errorf("%s: Retry-After %q", q, r.Header.Get("Retry-After"))
	}
}

func TestQuota_Requests(t *testing.T) {
	t.Parallel()
	g := start(t, nil)
	g.limit(t, quota.EmailsPerDay, 2)
	again := map[string]string{"Idempotency-Key": "first"}
	post := func(path, body string, header map[string]string) reply {
		t.Helper()
		return g.do(t, call{Method: http.MethodPost, Path: path, Body: body, Header: header})
	}
	mail := func(header map[string]string) reply {
		t.Helper()
		return post("/v1/email/send", emailBody(nil), header)
	}
	first := mail(again)
	if r := mail(nil); r.Status != http.StatusAccepted {
		t.Fatalf("%d %s", r.Status, r.Body)
	}
	overQuota(t, mail(nil), quota.EmailsPerDay, 2, 2)
	overQuota(t, mail(map[string]string{"Idempotency-Key": "second"}), quota.EmailsPerDay, 2, 2)
	if r := mail(again); r.Status != http.StatusAccepted || r.Body != first.Body || r.Header.Get("Idempotent-Replayed") != "true" {
		t.Errorf("the first one again: %d %s", r.Status, r.Body)
	}
	g.limit(t, quota.EmailsPerDay, 0)

	g.limit(t, quota.ScheduledEmails, 1)
	later := func() reply {
		t.Helper()
		return post("/v1/email/send", emailBody(func(f fields) { f["sendAt"] = time.Now().Add(time.Hour).Format(time.RFC3339) }), nil)
	}
	scheduled := later()
	id, _ := scheduled.json(t)["outboxId"].(string)
	overQuota(t, later(), quota.ScheduledEmails, 1, 1)
	past := emailBody(func(f fields) { f["sendAt"] = time.Now().Add(-time.Second).Format(time.RFC3339) })
	if r := post("/v1/email/send", past, nil); r.Status != http.StatusAccepted {
		t.Errorf("one that is due: %d %s", r.Status, r.Body)
	}
	if r := post("/v1/email/"+id+"/cancel", "", nil); r.Status != http.StatusOK {
		t.Fatalf("%d %s", r.Status, r.Body)
	}
	if r := later(); r.Status != http.StatusAccepted {
		t.Errorf("after a cancel: %d %s", r.Status, r.Body)
	}
	due, _ := first.json(t)["outboxId"].(string)
	overQuota(t, g.do(t, call{Method: http.MethodPatch, Path: "/v1/email/" + due, Body: `{"sendAt": "` + time.Now().Add(time.Hour).Format(time.RFC3339) + `"}`}), quota.ScheduledEmails, 1, 1)

	g.limit(t, quota.Recipients, 1)
	two := `{"recipients": [{"externalId": "Q1", "email": "q1@example.com"}, {"externalId": "Q2", "email": "q2@example.com"}]}`
	overQuota(t, post("/v1/recipients", two, nil), quota.Recipients, 1, 0)
	one := `{"externalId": "Q1", "email": "q1@example.com"}`
	if r := post("/v1/recipients", one, again); r.Status != http.StatusAccepted {
		t.Errorf("%d %s", r.Status, r.Body)
	}
	overQuota(t, post("/v1/recipients", two, nil), quota.Recipients, 1, 1)
	if r := post("/v1/recipients", one, again); r.Status != http.StatusAccepted || r.Header.Get("Idempotent-Replayed") != "true" {
		t.Errorf("%d %s", r.Status, r.Body)
	}

	g.limit(t, quota.Suppressions, 1)
	if r := g.suppress(t, `{"address": "a@example.com"}`); r.Status != http.StatusOK {
		t.Errorf("%d %s", r.Status, r.Body)
	}
	overQuota(t, g.suppress(t, `{"address": "b@example.com"}`), quota.Suppressions, 1, 1)
}

// Uploads that send nothing are limited by a quota too.
func TestQuota_HeldAndDryRuns(t *testing.T) {
	t.Parallel()
	g := start(t, nil)
	named := func(name, option, value string) []part {
		return given(part{name: "name", value: name}, part{name: option, value: value})
	}
	g.mail(t, named("a", "start", "false"))
	templates := storetest.Ask[int](t, g.Database, `SELECT octet_length(html) + coalesce(octet_length(text_body), 0) FROM mailings`)
	g.limit(t, quota.StoredBodyBytes, int64(templates))
	overQuota(t, g.upload(t, named("b", "start", "false"), nil), quota.StoredBodyBytes, float64(templates), float64(templates))

	g.mail(t, named("c", "dryRun", "true"))
	kept := storetest.Ask[int](t, g.Database, `SELECT sum(file_bytes) FROM mailings`)
	g.limit(t, quota.StoredFileBytes, int64(kept))
	overQuota(t, g.upload(t, named("d", "dryRun", "true"), nil), quota.StoredFileBytes, float64(kept), float64(kept))
}

func TestQuota_Uploads(t *testing.T) {
	t.Parallel()
	g := start(t, nil)
	g.limit(t, quota.MailingRowsPerDay, 5)
	overQuota(t, g.upload(t, mailingForm(), nil), quota.MailingRowsPerDay, 5, 0) // the file has 6 rows
	if files := g.Storage.files(t); len(files) != 0 || storetest.Ask[int](t, g.Database, `SELECT count(*) FROM mailings`) != 0 {
		t.Errorf("files %q", files)
	}
	g.limit(t, quota.MailingRowsPerDay, 0)
	g.limit(t, quota.RunningMailings, 1)
	id := g.mail(t, mailingForm())
	size := storetest.Ask[int](t, g.Database, `SELECT file_bytes FROM mailings`)
	if size <= len(people) {
		t.Errorf("%d bytes are stored", size)
	}
	other := given(part{name: "name", value: "outra"})
	overQuota(t, g.upload(t, other, nil), quota.RunningMailings, 1, 1)
	if r := g.upload(t, mailingForm(), nil); r.Status != http.StatusAccepted || r.Header.Get("Idempotent-Replayed") != "true" {
		t.Errorf("the first one again: %d %s", r.Status, r.Body)
	}
	held := g.mail(t, append(other, part{name: "start", value: "false"}))
	overQuota(t, g.do(t, call{Method: http.MethodPost, Path: "/mailings/" + held + "/start"}), quota.RunningMailings, 1, 1)
	if r := g.do(t, call{Method: http.MethodPost, Path: "/mailings/" + id + "/cancel"}); r.Status != http.StatusOK {
		t.Errorf("%d %s", r.Status, r.Body)
	}
	if r := g.do(t, call{Method: http.MethodPost, Path: "/mailings/" + held + "/start"}); r.Status != http.StatusOK {
		t.Errorf("%d %s", r.Status, r.Body)
	}
	g.limit(t, quota.RunningMailings, 0)
	g.limit(t, quota.StoredFileBytes, int64(2*size))
	overQuota(t, g.upload(t, given(part{name: "name", value: "terceira"}), nil), quota.StoredFileBytes, float64(2*size), float64(2*size))

	// A mailing that waits for a quota shows it.
	g.Run(t, `UPDATE mailings SET waiting_for = 'emails_per_day', waiting_until = now() + interval '1 hour' WHERE id = $1`, held)
	shown := g.do(t, call{Path: "/mailings/" + held}).json(t)
	list, _ := g.do(t, call{Path: "/mailings?limit=1"}).json(t)["mailings"].([]any)
	listed, _ := list[0].(map[string]any)
	for _, m := range []map[string]any{shown, listed} {
		if m["waitingFor"] != "emails_per_day" || m["waitingUntil"] == nil {
			t.Errorf("%v", m)
		}
	}
}
