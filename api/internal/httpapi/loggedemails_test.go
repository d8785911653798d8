package httpapi_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"email-gateway/shared/telemetry"
)

// loggedEmails returns the ids in the lines of a path with the status, by request id. A line has at most MaxIDs of them.
func loggedEmails(tb testing.TB, g *gateway, path string, status int) map[string][]string {
	tb.Helper()
	found := map[string][]string{}
	for line := range strings.Lines(g.Log.String()) {
		var logged struct {
			RequestID, Path string
			Status          int
			OutboxID        any
		}
		if err := json.Unmarshal([]byte(line), &logged); err != nil {
			tb.Fatal(err)
		}
		if logged.Path != path || logged.Status != status {
			continue
		}
		switch ids := logged.OutboxID.(type) {
		case string:
			found[logged.RequestID] = append(found[logged.RequestID], ids)
		case []any:
			if len(ids) > telemetry.MaxIDs {
				tb.Errorf("a line has %d ids", len(ids))
			}
			for _, id := range ids {
				found[logged.RequestID] = append(found[logged.RequestID], id.(string))
			}
		}
	}
	return found
}

// The log has the id of every email of a batch, also of one whose first response was lost with its log line.
func TestLog_HasEveryEmailOfABatch(t *testing.T) {
	t.Parallel()
	g := start(t, nil)
	const n = 2*telemetry.MaxIDs + 1
	var all []string
	for i := range n {
		all = append(all, emailBody(to(fmt.Sprintf("p%d@example.com", i))))
	}
	b := g.batch(t, "", "k", batchBody(all...)).batch(t)
	g.batch(t, "", "k", batchBody(all...))
	refused := g.batch(t, "?mode=partial", "", batchBody(emailBody(with("to", "no address")))).batch(t)
	logged := loggedEmails(t, g, "/v1/email/batch", http.StatusAccepted)
	if len(logged) != 2 || logged[refused.RequestID] != nil {
		t.Errorf("the log has emails of %d requests, want the first and its repetition", len(logged))
	}
	for request, ids := range logged {
		if len(ids) != n {
			t.Fatalf("%s: %d ids", request, len(ids))
		}
		for i, e := range b.Emails {
			if ids[i] != e.OutboxID {
				t.Fatalf("%s: email %d is %s, want %s", request, i, ids[i], e.OutboxID)
			}
		}
	}
}

// The log has the emails of an aggregate that are cancelled, and not those that are sent.
func TestLog_HasTheCancelledEmailsOfAnAggregate(t *testing.T) {
	t.Parallel()
	g := start(t, nil)
	var ids []string
	for _, eventType := range []string{"A", "B", "C"} {
		ids = append(ids, g.accept(t, emailBody(about("42", eventType))))
	}
	g.Run(t, "UPDATE email_outbox SET status = 'SENT', processed_at = now() WHERE id = $1", ids[1])
	r := g.do(t, call{Method: http.MethodPost, Path: "/v1/aggregates/interview/42/cancel"})
	logged := loggedEmails(t, g, "/v1/aggregates/:type/:id/cancel", http.StatusOK)[r.Header.Get("X-Request-Id")]
	if len(logged) != 2 || strings.Contains(strings.Join(logged, " "), ids[1]) {
		t.Errorf("%v are logged, want %s and %s: %s", logged, ids[0], ids[2], r.Body)
	}
}
