package httpapi_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"email-gateway/api/internal/apikey"
	"email-gateway/api/internal/httpapi"
	"email-gateway/shared/store/deadletter"
	"email-gateway/shared/store/storetest"
	"email-gateway/shared/store/tenant"
)

// makeDeadLetters creates n emails of the gateway's company that SES rejected, and returns their ids and those of
// their dead letters, oldest first.
func (g *gateway) makeDeadLetters(tb testing.TB, n int) (emails, letters []string) {
	tb.Helper()
	for i := range n {
		id := g.accept(tb, emailBody(func(f fields) {
			f["to"] = fmt.Sprintf("user%d@example.com", i)
			f["recipient"] = fields{"cpfCnpj": "529.982.247-25", "email": f["to"]}
		}))
		g.Programs.giveUp(tb, id)
		var deadLetter string
		if err := g.SQL.QueryRowContext(tb.Context(), `SELECT id FROM dead_letters WHERE outbox_id = $1`, id).Scan(&deadLetter); err != nil {
			tb.Fatal(err)
		}
		emails, letters = append(emails, id), append(letters, deadLetter)
	}
	return emails, letters
}

func (g *gateway) post(tb testing.TB, path, body string) reply {
	tb.Helper()
	return g.do(tb, call{Method: http.MethodPost, Path: path, Body: body})
}

// pick returns a nested value of a response.
func pick(tb testing.TB, r reply, names ...string) any {
	tb.Helper()
	var at any = r.json(tb)
	for _, name := range names {
		values, _ := at.(map[string]any)
		at = values[name]
	}
	return at
}

func TestDeadLetters_ListAndShow(t *testing.T) {
	t.Parallel()
	g := start(t, nil)
	emails, letters := g.makeDeadLetters(t, 3)
	g.Run(t, `UPDATE dead_letters SET reason = 'OTHER', resolved_at = now(), resolution = 'discarded' WHERE id = $1`, letters[1])
	list := func(query string) (ids []string) {
		t.Helper()
		for cursor := ""; ; {
			r := g.do(t, call{Path: "/v1/dead-letters?limit=2" + query + cursor})
			if r.Status != http.StatusOK {
				t.Fatalf("%s: %d %s", query, r.Status, r.Body)
			}
			page := r.json(t)
			found, _ := page["deadLetters"].([]any)
			for _, l := range found {
				ids = append(ids, l.(map[string]any)["id"].(string))
			}
			next, more := page["nextCursor"].(string)
			if !more {
				return ids
			}
			cursor = "&cursor=" + next
		}
	}
	for query, want := range map[string][]string{
		"":                                   {letters[2], letters[1], letters[0]},
		"&reason=SES_BAD_REQUEST":            {letters[2], letters[0]},
		"&resolved=true":                     {letters[1]},
		"&resolved=false":                    {letters[2], letters[0]},
		"&recipient=USER2@EXAMPLE.com":       {letters[2]},
		"&target=mailing.process":            nil,
		"&mailingId=" + emails[0]:            nil,
		"&createdAfter=2099-01-01T00:00:00Z": nil,
		"&createdBefore=2099-01-01T00:00:00Z&createdAfter=2020-01-01T00:00:00Z": {letters[2], letters[1], letters[0]},
	} {
		if diff := cmp.Diff(want, list(query)); diff != "" {
			t.Errorf("%s: %s", query, diff)
		}
	}

	r := g.do(t, call{Path: "/v1/dead-letters/" + letters[0]})
	hash, _ := pick(t, r, "payload", "recipient", "cpfCnpjHash").(string)
	if r.Status != http.StatusOK || pick(t, r, "outboxId") != emails[0] || pick(t, r, "reason") != "SES_BAD_REQUEST" || pick(t, r, "email", "status") != "FAILED" ||
		pick(t, r, "payload", "to") != "user0@example.com" || len(hash) != 11 || pick(t, r, "resolvedAt") != nil || strings.Contains(r.Body, "0001-01-01") {
		t.Errorf("%d %s", r.Status, r.Body)
	}
	if events, _ := pick(t, r, "email", "events").([]any); len(events) != 4 {
		t.Errorf("%v", events)
	}
	// Its email is purged.
	g.Run(t, `WITH o AS (DELETE FROM email_outbox WHERE id = $1) DELETE FROM email_logs WHERE outbox_id = $1`, emails[0])
	if r := g.do(t, call{Path: "/v1/dead-letters/" + letters[0]}); r.Status != http.StatusOK || pick(t, r, "email") != nil {
		t.Errorf("%d %s", r.Status, r.Body)
	}
}

func TestDeadLetters_Retry(t *testing.T) {
	t.Parallel()
	g := start(t, nil)
	emails, letters := g.makeDeadLetters(t, 2)
	wakes := g.Wakes.Load()
	r := g.post(t, "/v1/dead-letters/"+letters[0]+"/retry", "")
	if r.Status != http.StatusAccepted || pick(t, r, "resolution") != "retried" || pick(t, r, "resolvedBy") != "api:"+g.Key.ID ||
		pick(t, r, "email", "status") != "PENDING" || g.Wakes.Load() == wakes {
		t.Errorf("%d %s", r.Status, r.Body)
	}
	if r := g.post(t, "/v1/dead-letters/"+letters[0]+"/retry", ""); r.Status != http.StatusConflict || r.problem(t).Code != "NOT_REPLAYABLE" {
		t.Errorf("twice: %d %s", r.Status, r.Body)
	}
	if r := g.post(t, "/v1/dead-letters/"+letters[0]+"/discard", ""); r.Status != http.StatusConflict || r.problem(t).Code != "ALREADY_RESOLVED" {
		t.Errorf("discard: %d %s", r.Status, r.Body)
	}
	g.Run(t, `DELETE FROM email_outbox WHERE id = $1`, emails[1])
	if r := g.post(t, "/v1/dead-letters/"+letters[1]+"/retry", ""); r.Status != http.StatusConflict || r.problem(t).Code != "NOT_REPLAYABLE" {
		t.Errorf("not kept: %d %s", r.Status, r.Body)
	}
}

func TestDeadLetters_Discard(t *testing.T) {
	t.Parallel()
	g := start(t, nil)
	_, letters := g.makeDeadLetters(t, 2)
	for _, body := range []string{`{"note":"known"}`, `{"note":"again"}`, ""} {
		r := g.post(t, "/v1/dead-letters/"+letters[0]+"/discard", body)
		if r.Status != http.StatusOK || pick(t, r, "resolution") != "discarded" || pick(t, r, "note") != "known" || pick(t, r, "email", "status") != "FAILED" {
			t.Errorf("%s: %d %s", body, r.Status, r.Body)
		}
	}
	empty := "POST /v1/dead-letters/" + letters[0] + "/discard HTTP/1.1\r\nHost: x\r\nX-API-Key: " + g.Key.String() + "\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
	if line, _ := raw(t, strings.TrimPrefix(g.URL, "http://"), empty); line != "HTTP/1.1 200 OK" {
		t.Errorf("an empty body in chunks: %s", line)
	}
	for body, code := range map[string]string{`{"why":"x"}`: "VALIDATION_FAILED", `{`: "MALFORMED_JSON"} {
		if r := g.post(t, "/v1/dead-letters/"+letters[1]+"/discard", body); r.problem(t).Code != code {
			t.Errorf("%s: %d %s", body, r.Status, r.Body)
		}
	}
	if n := storetest.Ask[int](t, g.Database, `SELECT count(*) FROM dead_letters WHERE resolved_at IS NULL`); n != 1 {
		t.Errorf("%d open", n)
	}
}

// Without RabbitMQ, only emails can be retried.
func TestDeadLetters_WithoutRabbitMQ(t *testing.T) {
	t.Parallel()
	g := start(t, func(p *httpapi.Params) { p.HasRabbitMQ = false })
	_, letters := g.makeDeadLetters(t, 2)
	g.Run(t, `UPDATE dead_letters SET target = 'recipients.upsert' WHERE id = $1`, letters[1])
	if r := g.post(t, "/v1/dead-letters/"+letters[0]+"/retry", ""); r.Status != http.StatusAccepted {
		t.Errorf("%d %s", r.Status, r.Body)
	}
	for path, body := range map[string]string{"/v1/dead-letters/" + letters[1] + "/retry": "", "/v1/dead-letters/retry": `{"target":"recipients.upsert"}`} {
		if r := g.post(t, path, body); r.Status != http.StatusServiceUnavailable || r.problem(t).Code != "BULK_DISABLED" {
			t.Errorf("%s: %d %s", path, r.Status, r.Body)
		}
	}
}

func TestDeadLetters_Replay(t *testing.T) {
	t.Parallel()
	g := start(t, nil)
	g.makeDeadLetters(t, 3)
	r := g.post(t, "/v1/dead-letters/retry", `{"reason":"SES_BAD_REQUEST","createdBefore":"2099-01-01T00:00:00-03:00","rate":7,"limit":2,"note":"mended"}`)
	location := r.Header.Get("Location")
	if r.Status != http.StatusAccepted || pick(t, r, "action") != "retry" || pick(t, r, "status") != "RUNNING" || pick(t, r, "matched") != 2.0 || pick(t, r, "rate") != 7.0 ||
		pick(t, r, "filter", "reason") != "SES_BAD_REQUEST" || pick(t, r, "note") != "mended" || location != "/v1/dead-letter-replays/"+fmt.Sprint(pick(t, r, "replayId")) {
		t.Fatalf("%d %v %s", r.Status, r.Header, r.Body)
	}
	g.Run(t, `UPDATE dead_letter_replays SET done = 1, skipped = 1, status = 'COMPLETED', finished_at = now()`)
	if r := g.do(t, call{Path: location}); r.Status != http.StatusOK || pick(t, r, "done") != 1.0 || pick(t, r, "skipped") != 1.0 || pick(t, r, "finishedAt") == nil {
		t.Errorf("%d %s", r.Status, r.Body)
	}
	if r := g.post(t, "/v1/dead-letters/discard", `{}`); r.Status != http.StatusAccepted || pick(t, r, "action") != "discard" || pick(t, r, "matched") != 3.0 || pick(t, r, "rate") != 100.0 {
		t.Errorf("%d %s", r.Status, r.Body)
	}
	r = g.post(t, "/v1/dead-letters/retry", `{"reason":"","target":"x","mailingId":"1","recipient":"a","createdAfter":"today","createdBefore":"0001-01-01T00:00:00Z","limit":0,"rate":1001,"filter":{}}`)
	var wrong []string
	for _, f := range r.problem(t).Errors {
		wrong = append(wrong, f.Field)
	}
	if diff := cmp.Diff("reason filter target mailingId recipient createdAfter limit rate createdBefore", strings.Join(wrong, " ")); diff != "" || r.Status != http.StatusUnprocessableEntity {
		t.Errorf("%d %s", r.Status, diff)
	}
}

// A company can have at most ten running replays.
func TestDeadLetters_TooManyReplays(t *testing.T) {
	t.Parallel()
	g := start(t, nil)
	for range deadletter.MaxRunningReplays {
		if r := g.post(t, "/v1/dead-letters/discard", `{"reason":"NONE"}`); r.Status != http.StatusAccepted {
			t.Fatalf("%d %s", r.Status, r.Body)
		}
	}
	for _, path := range []string{"/v1/dead-letters/discard", "/v1/dead-letters/retry"} {
		if r := g.post(t, path, `{}`); r.Status != http.StatusTooManyRequests || r.problem(t).Code != "TOO_MANY_REPLAYS" || r.Header.Get("Retry-After") == "" {
			t.Errorf("%s: %d %s", path, r.Status, r.Body)
		}
	}
}

// Dead letters of another company are not found, the scope is required, and queries are validated.
func TestDeadLetters_Refused(t *testing.T) {
	t.Parallel()
	g := start(t, nil)
	_, letters := g.makeDeadLetters(t, 1)
	replay, _ := pick(t, g.post(t, "/v1/dead-letters/discard", `{"reason":"NONE"}`), "replayId").(string)
	stranger := g.newKey(t, g.Database.Company(t), nil).String()
	narrow := g.newKey(t, g.Company, func(k *tenant.APIKey) { k.Scopes = []string{apikey.EmailsSend, apikey.EmailsRead} }).String()
	for _, c := range []call{
		{Path: "/v1/dead-letters/" + letters[0]},
		{Method: http.MethodPost, Path: "/v1/dead-letters/" + letters[0] + "/retry"},
		{Method: http.MethodPost, Path: "/v1/dead-letters/" + letters[0] + "/discard"},
		{Path: "/v1/dead-letter-replays/" + replay},
	} {
		for key, status := range map[string]int{stranger: http.StatusNotFound, narrow: http.StatusForbidden} {
			c.Key = key
			if r := g.do(t, c); r.Status != status {
				t.Errorf("%s: %d, want %d", c.Path, r.Status, status)
			}
		}
		for _, id := range []string{letters[0], replay} {
			unknown := strings.Replace(c.Path, id, "x", 1)
			if r := g.do(t, call{Method: c.Method, Path: unknown}); unknown != c.Path && r.Status != http.StatusNotFound {
				t.Errorf("%s: %d", unknown, r.Status)
			}
		}
	}
	for _, c := range []call{
		{Path: "/v1/dead-letters"},
		{Method: http.MethodPost, Path: "/v1/dead-letters/retry", Body: "{}"},
		{Method: http.MethodPost, Path: "/v1/dead-letters/discard", Body: "{}"},
	} {
		c.Key = narrow
		if r := g.do(t, c); r.Status != http.StatusForbidden {
			t.Errorf("%s: %d", c.Path, r.Status)
		}
	}
	if r := g.do(t, call{Path: "/v1/dead-letters", Key: stranger}); r.Status != http.StatusOK || strings.Contains(r.Body, letters[0]) {
		t.Errorf("%d %s", r.Status, r.Body)
	}
	for _, query := range []string{
		"cursor=x", "cursor=e30x", "limit=0", "target=email", "mailingId=1", "recipient=x", "createdAfter=now", "createdBefore=0001-01-01T00:00:00Z",
		"resolved=maybe", "status=OPEN",
	} {
		r := g.do(t, call{Path: "/v1/dead-letters?" + query})
		name, _, _ := strings.Cut(query, "=")
		if r.Status != http.StatusUnprocessableEntity || len(r.problem(t).Errors) != 1 || r.problem(t).Errors[0].Field != name {
			t.Errorf("%s: %d %s", query, r.Status, r.Body)
		}
	}
}
