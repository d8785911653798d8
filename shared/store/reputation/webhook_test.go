package reputation_test

import (
	"encoding/json"
	"slices"
	"testing"
	"time"

	"email-gateway/shared/store/storetest"
	"email-gateway/shared/store/webhook"
)

// TestWebhook: webhook endpoints get the events of the company, in order, without an email.
func TestWebhook(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.feedback(t, "Complaint", complaint, b.sent(t, b.company, 200, time.Minute)[:5]...)
	b.check(t, b.company)
	if _, err := b.rep.Resume(t.Context(), storetest.Operator(), b.company); err != nil {
		t.Fatal(err)
	}
	b.events(t, b.company) // which have their positions now
	hooks := webhook.NewSenderStore(b.Store.DB())
	page, err := hooks.Read(t.Context(), b.company, webhook.Cursor{}, []string{"company.*"}, 10)
	if err != nil {
		t.Fatal(err)
	}
	var types, ids []string
	for _, e := range page.Events {
		types, ids = append(types, e.Type), append(ids, e.ID)
		if e.EmailID != b.company {
			t.Errorf("%s is ordered by %s, want the company", e.Type, e.EmailID)
		}
	}
	if want := []string{"company.mailings_paused", "company.mailings_resumed"}; !slices.Equal(types, want) {
		t.Fatalf("types %q, want %q", types, want)
	}
	var data map[string]any
	if err := json.Unmarshal(page.Events[0].Data, &data); err != nil {
		t.Fatal(err)
	}
	metadata, _ := data["metadata"].(map[string]any)
	if len(data) != 1 || metadata["rule"] != "complaints_1h" || metadata["sent"] != 200.0 || metadata["events"] != 5.0 || metadata["ratePercent"] != 2.5 || metadata["thresholdPercent"] != 1.0 {
		t.Errorf("data %s", page.Events[0].Data)
	}
	if found, err := hooks.FindEvents(t.Context(), b.company, ids); err != nil || len(found) != 2 {
		t.Errorf("found by id: %v, %v", found, err)
	}
	if others, err := hooks.Read(t.Context(), b.Company(t), webhook.Cursor{}, nil, 10); err != nil || len(others.Events) != 0 {
		t.Errorf("another company: %+v, %v", others, err)
	}
	if emails, err := hooks.Read(t.Context(), b.company, webhook.Cursor{}, []string{"email.*"}, 300); err != nil || len(emails.Events) != 200 {
		t.Errorf("%d events of emails, %v", len(emails.Events), err)
	}
}
