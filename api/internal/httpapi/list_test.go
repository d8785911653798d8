package httpapi_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"email-gateway/shared/email"
	"email-gateway/shared/store/outbox"
)

// page is one page of a list: the ids and the cursor.
func (g *gateway) page(tb testing.TB, query string) (ids []string, next string) {
	tb.Helper()
	r := g.do(tb, call{Path: "/v1/emails?" + query})
	if r.Status != http.StatusOK {
		tb.Fatalf("%s: %d %s", query, r.Status, r.Body)
	}
	answer := r.json(tb)
	list, _ := answer["emails"].([]any)
	for _, e := range list {
		id, _ := e.(map[string]any)["outboxId"].(string)
		ids = append(ids, id)
	}
	next, _ = answer["nextCursor"].(string)
	return ids, next
}

func TestList_PageByPage(t *testing.T) {
	t.Parallel()
	g := start(t, nil)
	var want []string
	for range 7 {
		want = append(want, g.accept(t, emailBody(nil)))
	}
	slices.Reverse(want)
	g.Programs.claim(t, want[3]) // one of them has a log, too
	var got []string
	for query, pages := "limit=3", 0; query != "" && pages < 10; pages++ {
		ids, next := g.page(t, query)
		got = append(got, ids...)
		if query = ""; next != "" {
			query = "limit=3&cursor=" + next
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if ids, _ := g.page(t, ""); len(ids) != 7 {
		t.Errorf("without limit: %d", len(ids))
	}
}

func TestList_Filters(t *testing.T) {
	t.Parallel()
	g := start(t, nil)
	plain := g.accept(t, emailBody(nil))
	tagged := g.accept(t, emailBody(with("tags", []string{"fatura", "março 2026"})))
	other := g.accept(t, emailBody(func(f fields) {
		f["to"] = "Eva@Exämple.com"
		f["recipient"] = fields{"externalId": "C/2", "email": "Eva@exämple.com"}
	}))
	named := g.do(t, call{Method: http.MethodPost, Path: "/v1/email/send", Body: emailBody(nil), Header: map[string]string{"X-Request-Id": "req-7"}})
	namedID, _ := named.json(t)["outboxId"].(string)
	for _, id := range []string{other, namedID} {
		g.Programs.giveUp(t, id)
	}
	for query, want := range map[string][]string{
		"status=PENDING":              {tagged, plain},
		"status=FAILED":               {namedID, other},
		"status=SENT":                 nil,
		"tag=fatura":                  {tagged},
		"tag=" + escape("março 2026"): {tagged},
		"tag=nothing":                 nil,
		"recipient=" + escape("eva@exämple.com"):                          {other},
		"recipient=eva@xn--exmple-cua.com":                                {other},
		"externalId=" + escape("C/2"):                                     {other},
		"requestId=req-7":                                                 {namedID},
		"status=FAILED&externalId=CUST-1":                                 {namedID},
		"createdAfter=2020-01-01T00:00:00Z":                               {namedID, other, tagged, plain},
		"createdBefore=2020-01-01T00:00:00Z":                              nil,
		"tag=&recipient=%20%20&externalId=%E2%80%8B&createdAfter=&limit=": {namedID, other, tagged, plain}, // blank is absent
	} {
		if got, next := g.page(t, query); !slices.Equal(got, want) || next != "" {
			t.Errorf("%s: %v (next %q), want %v", query, got, next, want)
		}
	}
}

func TestList_DateBoundsAreExact(t *testing.T) {
	t.Parallel()
	g := start(t, nil)
	id := g.accept(t, emailBody(nil))
	created, err := time.Parse(time.RFC3339, g.show(t, id)["createdAt"].(string))
	if err != nil {
		t.Fatal(err)
	}
	at := func(d time.Duration) string { return escape(created.Add(d).Format("2006-01-02T15:04:05.000Z07:00")) }
	for query, found := range map[string]bool{
		"createdAfter=" + at(0): true, "createdAfter=" + at(time.Millisecond): false,
		"createdBefore=" + at(0): false, "createdBefore=" + at(time.Millisecond): true,
		"createdAfter=" + at(0) + "&createdBefore=" + at(time.Millisecond): true,
	} {
		if ids, _ := g.page(t, query); (len(ids) == 1) != found {
			t.Errorf("%s: %v", query, ids)
		}
	}
}

func TestList_Refuses(t *testing.T) {
	t.Parallel()
	g := start(t, nil)
	for query, want := range map[string]string{
		"limit=0": "limit", "limit=101": "limit", "limit=x": "limit", "limit=1&limit=2": "limit",
		"cursor=x": "cursor", "cursor=AAAA": "cursor", "status=sent": "status", "status=RECEIVED": "status",
		"recipient=ana": "recipient", "tag=%00": "tag", "tag=%ff": "tag", "externalId=a%0ab": "externalId", "externalId=%00": "externalId",
		"delivery=sent": "delivery", "updatedAfter=yesterday": "updatedAfter", "requestId=%00": "requestId", "createdAfter=yesterday": "createdAfter", "createdAfter=2026-01-01": "createdAfter",
		"createdBefore=1960-01-01T00:00:00Z": "createdBefore", "page=2": "page", "Limit=1": "Limit", "aggregate=x": "aggregate",
		"%00=1": "\x00", "x%ff=1": "x\ufffd",
	} {
		r := g.do(t, call{Path: "/v1/emails?" + query})
		p := r.problem(t)
		if r.Status != http.StatusUnprocessableEntity || p.Code != "VALIDATION_FAILED" || len(p.Errors) != 1 || p.Errors[0].Field != want {
			t.Errorf("%s: %d %s", query, r.Status, r.Body)
		}
	}
	for name, value := range map[string]string{"createdAfter": "2026-03-01T09:00:00+03:00", "updatedAfter": "2026-03-01T09:00:00+03:00", "recipient": "ana+promo@example.com"} {
		if r := g.do(t, call{Path: "/v1/emails?" + name + "=" + value}); !strings.Contains(r.Body, "write + as %2B") {
			t.Errorf("%s with an unescaped plus sign: %d %s", name, r.Status, r.Body)
		}
	}
	r := g.do(t, call{Path: "/v1/emails?limit=0&status=x&tag=%00&page=1&cursor=x"})
	if p := r.problem(t); len(p.Errors) != 5 {
		t.Errorf("the response does not list all faults: %s", r.Body)
	}
	for _, query := range []string{"limit=%zz", "a;b"} {
		if r := g.do(t, call{Path: "/v1/emails?" + query}); r.Status != http.StatusBadRequest || r.problem(t).Code != "MALFORMED_QUERY" {
			t.Errorf("%s: %d %s", query, r.Status, r.Body)
		}
	}
}

// TestList_ContinuesAfterAShortPage: a rare status is searched in steps.
func TestList_ContinuesAfterAShortPage(t *testing.T) {
	t.Parallel()
	g := start(t, nil)
	rare := g.accept(t, emailBody(nil))
	g.Programs.giveUp(t, rare)
	g.Run(t, `INSERT INTO email_outbox (id, company_id, lane_id, request_id, payload, sender, html, html_sha256, checker_version, expires_at)
		SELECT ('ffffffff-ffff-7000-8000-' || lpad(to_hex(n), 12, '0'))::uuid, company_id, lane_id, 'r', payload, sender, html, html_sha256, checker_version, expires_at
		FROM email_outbox, generate_series(1, 5500) n`)
	ids, next := g.page(t, "status=FAILED")
	if len(ids) != 0 || next == "" {
		t.Fatalf("%v, next %q", ids, next)
	}
	if ids, next = g.page(t, "status=FAILED&cursor="+next); !slices.Equal(ids, []string{rare}) || next != "" {
		t.Errorf("%v, next %q", ids, next)
	}
}

// Scheduled emails are found among any number of newer waiting ones.
func TestList_FindsScheduledEmails(t *testing.T) {
	t.Parallel()
	g := start(t, nil)
	id := g.accept(t, emailBody(func(f fields) {
		f["sendAt"], f["tags"] = time.Now().Add(48*time.Hour).Format(time.RFC3339), []string{"reminder"}
		f["aggregate"] = fields{"type": "interview", "id": "42", "eventType": "REMINDER"}
	}))
	g.Run(t, `INSERT INTO email_outbox (id, company_id, lane_id, request_id, payload, sender, html, html_sha256, checker_version, expires_at)
		SELECT ('ffffffff-ffff-7000-8000-' || lpad(to_hex(n), 12, '0'))::uuid, company_id, lane_id, 'r',
		       payload - 'tags' || '{"to": "bea@example.com", "recipient": {"externalId": "CUST-2"}}', sender, html, html_sha256, checker_version, expires_at
		FROM email_outbox, generate_series(1, 5500) n`)
	request := g.show(t, id)["requestId"].(string)
	for _, query := range []string{"recipient=ANA@example.com", "externalId=CUST-1", "requestId=" + request, "aggregateType=interview&aggregateId=42"} {
		for _, more := range []string{"", "&status=PENDING", "&tag=reminder"} {
			if ids, next := g.page(t, query+more); !slices.Equal(ids, []string{id}) || next != "" {
				t.Errorf("%s%s: %v, next %q", query, more, ids, next)
			}
		}
	}
	if ids, next := g.page(t, "tag=reminder"); !slices.Equal(ids, []string{id}) || next != "" {
		t.Errorf("by tag: %v, next %q", ids, next)
	}
	// A due email that no worker has received is found too.
	if ids, _ := g.page(t, "externalId=CUST-2&limit=3"); len(ids) != 3 {
		t.Errorf("due: %v", ids)
	}
}

func TestList_ShowsTheWorkersError(t *testing.T) {
	t.Parallel()
	g := start(t, nil)
	id := g.accept(t, emailBody(nil))
	g.Programs.advance(t, id, outbox.Transition{
		Guard: outbox.GuardAttempt, Token: g.Programs.claim(t, id), Status: email.RetryScheduled, Delay: time.Minute, AddThrottles: 1,
		ErrorCode: "SES_THROTTLING", ErrorReason: "slow down", Events: events(email.EventRetryScheduled),
	})
	r := g.do(t, call{Path: "/v1/emails"})
	list, _ := r.json(t)["emails"].([]any)
	e, _ := list[0].(map[string]any)
	if got := fmt.Sprintf("%v %v %v %v %v", e["status"], e["attempts"], e["throttles"], e["errorCode"], e["nextAttemptAt"] != nil); got != "RETRY_SCHEDULED 1 1 SES_THROTTLING true" {
		t.Error(got)
	}
}
