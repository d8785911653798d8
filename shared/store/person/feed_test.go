package person_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"

	"email-gateway/shared/email"
	"email-gateway/shared/store/event"
	"email-gateway/shared/store/person"
	"email-gateway/shared/store/recipient"
	"email-gateway/shared/store/storetest"
)

// The events of an erased person keep their ids and their order in the feed, without personal data. The event of the
// cancellation that the erasure makes comes behind the cursors given before.
func TestEraseEmails_EventsKeepTheirPlace(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	feed, people := event.New(d.Store.DB()), person.New(d.Store.DB())
	sent, waiting := storetest.EndedEmail(t, d, company, 0, email.Failed), d.Accept(t, company, nil)
	read := func() (all []event.Event, end event.Cursor) {
		t.Helper()
		for {
			n, err := feed.AssignPositions(t.Context(), 100)
			if err != nil {
				t.Fatal(err)
			}
			if n == 0 {
				break
			}
		}
		page, err := feed.Read(t.Context(), company, event.Cursor{}, nil, 100)
		if err != nil {
			t.Fatal(err)
		}
		return page.Events, page.Next
	}
	ids := func(all []event.Event) (ids []string) {
		for _, e := range all {
			ids = append(ids, e.ID())
		}
		return ids
	}
	before, end := read()
	if text, _ := json.Marshal(before); len(before) < 4 || !strings.Contains(string(text), "ana@example.com") {
		t.Fatalf("before: %s", text)
	}
	if _, err := people.EraseEmails(t.Context(), storetest.Because("request 17"), company, uuid.New(), []uuid.UUID{sent, waiting}); err != nil {
		t.Fatal(err)
	}
	after, _ := read()
	if got := ids(after); !slices.Equal(got[:len(before)], ids(before)) || len(got) != len(before)+1 || got[len(before)] != waiting.String()+".1" {
		t.Errorf("the feed was %v and is %v", ids(before), got)
	}
	if text, _ := json.Marshal(after); strings.Contains(strings.ToLower(string(text)), "ana") || !strings.Contains(string(text), recipient.ErasedAddress) {
		t.Errorf("after: %s", text)
	}
	if more, err := feed.Read(t.Context(), company, end, nil, 100); err != nil || len(more.Events) != 1 || more.Events[0].Type != email.EventCancelled {
		t.Errorf("behind the old cursor: %+v, %v", more.Events, err)
	}
}
