package checker

import (
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	standard "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"email-gateway/scripts/chaos/load"
	"email-gateway/scripts/chaos/receiver"
)

// three are the events of one email.
var three = []stored{{"a", 1, "RECEIVED"}, {"a", 2, "SENT"}, {"a", 3, "DELIVERED"}}

func feedOf(events ...stored) load.Feed {
	var f load.Feed
	for _, s := range events {
		f.Events = append(f.Events, load.FeedEvent{ID: s.id(), OutboxID: s.email, Seq: s.seq, Type: s.kind})
	}
	return f
}

func TestCheckFeed(t *testing.T) {
	t.Parallel()
	other := stored{"b", 1, "RECEIVED"}
	for name, tt := range map[string]struct {
		followed, again load.Feed
		want            string
	}{
		"whole":                  {feedOf(three...), feedOf(three...), ""},
		"stopped early":          {feedOf(three[0]), feedOf(three...), MissingEvent},
		"missing in both":        {feedOf(three[:2]...), feedOf(three[:2]...), MissingEvent},
		"behind a cursor":        {feedOf(three...), feedOf(append([]stored{other}, three...)...), EventOrder},
		"another order":          {feedOf(three[0], other, three[1], three[2]), feedOf(other, three[0], three[1], three[2]), EventOrder},
		"another company's":      {feedOf(append(three, other)...), feedOf(append(three, other)...), EventOrder},
		"another type":           {feedOf(three[0], stored{"a", 2, "FAILED"}, three[2]), feedOf(three[0], stored{"a", 2, "FAILED"}, three[2]), EventOrder},
		"out of order":           {feedOf(three[1], three[0], three[2]), feedOf(three[1], three[0], three[2]), EventOrder},
		"twice":                  {feedOf(append(three, three[2])...), feedOf(append(three, three[2])...), EventOrder},
		"a response of an error": {load.Feed{Refused: "410"}, feedOf(three...), Promise},
	} {
		found := NewFindings()
		feedCheck{found, &FeedCounts{}}.feed("Acme", three, tt.followed, tt.again)
		if tt.want == "" && len(found.byPromise) > 0 || tt.want != "" && found.Count(tt.want) == 0 {
			t.Errorf("%s: %+v, want %q", name, found.list(), tt.want)
		}
	}
}

// endpoint returns an endpoint that got the events in that order.
func endpoint(t *testing.T, types []string, events ...stored) *receiver.Endpoint {
	t.Helper()
	server, err := receiver.New([]receiver.Spec{{Name: "hook", Company: "Acme", Types: types}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close() })
	key := make([]byte, 32)
	_, _ = rand.Read(key) // never fails
	secret := "whsec_" + base64.StdEncoding.EncodeToString(key)
	hook, err := standard.NewWebhook(secret)
	if err != nil {
		t.Fatal(err)
	}
	e := server.Endpoints[0]
	if err := e.SetSecret(secret); err != nil {
		t.Fatal(err)
	}
	for _, s := range events {
		body := fmt.Appendf(nil, `{"type":%q,"timestamp":"2026-03-01T08:00:00Z","data":{"outboxId":%q,"seq":%d}}`, publicType(s.kind), s.email, s.seq)
		now := time.Now()
		signature, err := hook.Sign(s.id(), now, body)
		if err != nil {
			t.Fatal(err)
		}
		request := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/hook", bytes.NewReader(body))
		request.Header.Set("webhook-id", s.id())
		request.Header.Set("webhook-timestamp", fmt.Sprint(now.Unix()))
		request.Header.Set("webhook-signature", signature)
		e.ServeHTTP(httptest.NewRecorder(), request)
	}
	return e
}

func TestCheckEndpoint(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		types []string
		got   []stored
		want  string
	}{
		"whole":        {nil, three, ""},
		"repeated":     {nil, []stored{three[0], three[0], three[1], three[0], three[2]}, ""},
		"filtered":     {[]string{"email.deliver*", "email.received"}, []stored{three[0], three[2]}, ""},
		"missing":      {nil, three[:2], MissingEvent},
		"out of order": {nil, []stored{three[0], three[2], three[1]}, EventOrder},
		"not selected": {[]string{"email.sent"}, []stored{three[0], three[1]}, EventOrder},
		"changed":      {nil, append(three[:3:3], stored{"a", 3, "BOUNCED"}), Promise},
	} {
		found := NewFindings()
		feedCheck{found, &FeedCounts{}}.endpoint(endpoint(t, tt.types, tt.got...), three)
		if tt.want == "" && len(found.byPromise) > 0 || tt.want != "" && found.Count(tt.want) == 0 {
			t.Errorf("%s: %+v, want %q", name, found.list(), tt.want)
		}
	}
	unsigned := endpoint(t, nil)
	unsigned.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/hook", strings.NewReader("{}")))
	if faults := unsigned.Result().Faults; len(faults) != 1 {
		t.Errorf("a request without a signature: %v", faults)
	}
}
