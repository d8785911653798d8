package privacy_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"email-gateway/shared/store/event"
	"email-gateway/shared/store/webhook"
)

// After an erasure the events of the person's emails keep their places in the feed and come to webhooks as before,
// without the person; stored deliveries hold nothing of them.
func TestErase_EventsAndWebhooks(t *testing.T) {
	t.Parallel()
	h := newHistory(t)
	feed, sender := event.New(h.Store.DB()), webhook.NewSenderStore(h.Store.DB())
	if _, err := feed.AssignPositions(t.Context(), 1000); err != nil {
		t.Fatal(err)
	}
	endpoint := webhook.Endpoint{ID: uuid.Must(uuid.NewV7()), CompanyID: h.company, URL: "https://erp.acme.example/hooks", Secret: []byte("x")}
	if _, err := webhook.New(h.Store.DB()).Create(t.Context(), endpoint); err != nil {
		t.Fatal(err)
	}
	before := h.read(t, sender)
	named := func(events []webhook.Event) (n int) {
		for _, e := range events {
			if slices.ContainsFunc([]string{former, later}, func(address string) bool { return strings.Contains(strings.ToLower(string(e.Data)), address) }) {
				n++
			}
		}
		return n
	}
	if named(before) < 4 {
		t.Fatalf("%d of %d events name her before", named(before), len(before))
	}
	// Every delivery has failed.
	lease := webhook.Lease{EndpointID: endpoint.ID, Token: uuid.New()}
	if err := sender.Take(t.Context(), lease, time.Minute); err != nil {
		t.Fatal(err)
	}
	var failed webhook.Result
	code := "HTTP_500"
	for _, e := range before {
		failed.New = append(failed.New, webhook.Attempted{Wait: time.Hour, Delivery: webhook.Delivery{
			EventID: e.ID, Type: e.Type, Position: e.Position, EmailID: &e.EmailID, Status: webhook.Retrying, Attempts: 1, LastError: &code,
		}})
	}
	if _, err := sender.Record(t.Context(), lease, failed, time.Hour); err != nil {
		t.Fatal(err)
	}

	if done := h.eraseJoana(t, nil); !done.Complete() {
		t.Fatalf("%+v", done)
	}
	h.mustNotName(t, joana...)
	after := h.read(t, sender)
	if named(after) != 0 {
		t.Errorf("%d events name her: %s", named(after), after[0].Data)
	}
	ids := func(events []webhook.Event) (all []string) {
		for _, e := range events {
			all = append(all, e.ID)
		}
		return all
	}
	if len(after) < len(before) || !slices.Equal(ids(after)[:len(before)], ids(before)) {
		t.Errorf("the events were %v and are %v", ids(before), ids(after))
	}
	// What the sender attempts again.
	found, err := sender.FindEvents(t.Context(), h.company, ids(before))
	if err != nil || len(found) != len(before) {
		t.Fatalf("%d events, %v", len(found), err)
	}
	for _, e := range found {
		if named([]webhook.Event{e}) > 0 {
			t.Errorf("a repeated delivery names her: %s", e.Data)
		}
	}
}

// read reads the feed of the company as its webhooks do.
func (h history) read(t *testing.T, sender *webhook.SenderStore) []webhook.Event {
	t.Helper()
	page, err := sender.Read(t.Context(), h.company, webhook.Cursor{}, nil, 100)
	if err != nil {
		t.Fatal(err)
	}
	return page.Events
}
