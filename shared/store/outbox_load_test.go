package store_test

import (
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/google/uuid"

	"email-gateway/shared/email"
	"email-gateway/shared/store"
	"email-gateway/shared/store/outbox"
	"email-gateway/shared/store/storetest"
)

func TestLoad(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	e := storetest.NewEmail(company, func(e *outbox.NewEmail) {
		e.Text, e.Delivery, e.HTML = "Olá", email.AtMostOnce, "<p>\"ção\" \\ 𝄞</p>"
	})
	if err := d.Store.NewAccepter().Accept(t.Context(), e); err != nil {
		t.Fatal(err)
	}
	run(t, d, `UPDATE email_outbox SET attempts = 3, throttles = 1, status = 'ENQUEUED'`)
	got, err := d.Store.NewLoader().Load(t.Context(), e.ID)
	if err != nil {
		t.Fatal(err)
	}
	want := &outbox.LoadedEmail{
		ID: e.ID, CompanyID: company, InstallationID: ask[uuid.UUID](t, d, `SELECT id FROM installation`), RequestID: e.RequestID, Status: email.Enqueued, Attempts: 3, Throttles: 1, Due: true, LaneOpen: true, BreakerClosed: true,
		Sender: e.Sender, HTML: e.HTML, Text: "Olá", AutoText: true, HTMLSHA256: e.HTMLSHA256, CheckerVersion: e.CheckerVersion, Delivery: email.AtMostOnce,
	}
	if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(outbox.LoadedEmail{}, "Payload", "ExpiresAt"), cmpopts.EquateEmpty()); diff != "" {
		t.Error(diff)
	}
	if left := time.Until(got.ExpiresAt); !about(left, 24*time.Hour) || len(got.Payload) == 0 {
		t.Errorf("expires in %s, payload %s", left, got.Payload)
	}
}

func TestLoad_Obstacles(t *testing.T) {
	t.Parallel()
	for change, want := range map[string]outbox.LoadedEmail{
		`SELECT 1`: {Due: true, LaneOpen: true},
		`UPDATE email_outbox SET next_at = now() + interval '500 ms'`:       {Due: true, LaneOpen: true},
		`UPDATE email_outbox SET next_at = now() + interval '10 s'`:         {LaneOpen: true},
		`UPDATE email_outbox SET expires_at = now()`:                        {Due: true, Expired: true, LaneOpen: true},
		`UPDATE dispatch_lanes SET paused_at = now()`:                       {Due: true},
		`UPDATE dispatch_lanes SET parked_until = now() + interval '1 min'`: {Due: true},
		`UPDATE companies SET suspended_at = now()`:                         {Due: true},
		`DELETE FROM dispatch_lanes`:                                        {Due: true}, // found all the same: it must be ended
	} {
		t.Run(change, func(t *testing.T) {
			t.Parallel()
			d := storetest.New(t)
			id := d.Accept(t, d.Company(t), nil)
			run(t, d, change)
			got, err := d.Store.NewLoader().Load(t.Context(), id)
			if err != nil || got.Due != want.Due || got.Expired != want.Expired || got.LaneOpen != want.LaneOpen {
				t.Errorf("due %v, expired %v, lane open %v; %v", got.Due, got.Expired, got.LaneOpen, err)
			}
		})
	}
}

func TestLoad_RecipientKnown(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company, other := d.Company(t), d.Company(t)
	person := func(company uuid.UUID, address string, deleted bool) string {
		id := uuid.New()
		run(t, d, `INSERT INTO recipients (id, company_id, email, deleted_at) VALUES ($1, $2, $3, CASE WHEN $4 THEN now() END)`, id, company, address, deleted)
		return id.String()
	}
	for name, tt := range map[string]struct {
		id   string
		want bool
	}{
		"known":             {person(company, "ana@EXAMPLE.com", false), true},
		"in any case":       {person(company, "ANA@example.com", false), true},
		"another address":   {person(company, "eva@example.com", false), false},
		"deleted":           {person(company, "ana@example.com", true), false},
		"another company's": {person(other, "ana@example.com", false), false},
		"unknown":           {uuid.NewString(), false},
		"none named":        {"", false},
	} {
		id := d.Accept(t, company, func(e *outbox.NewEmail) { e.Job.Recipient.RecipientID = tt.id })
		if got, err := d.Store.NewLoader().Load(t.Context(), id); err != nil || got.RecipientKnown != tt.want {
			t.Errorf("%s: %v, %v", name, got.RecipientKnown, err)
		}
	}
}

// A recipient whose import is pending is known at the import's address, also to a company
// that has deleted the person before.
func TestLoad_RecipientWaiting(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company, person := d.Company(t), uuid.New()
	id := d.Accept(t, company, func(e *outbox.NewEmail) { e.Job.Recipient.RecipientID = person.String() })
	for _, tt := range []struct {
		change string
		want   bool
	}{
		{`INSERT INTO recipient_intakes (recipient_id, outbox_id, company_id, email) VALUES ($1, gen_random_uuid(), gen_random_uuid(), 'ana@example.com')`, false},
		{`UPDATE recipient_intakes SET company_id = (SELECT id FROM companies), email = 'eva@example.com' WHERE recipient_id = $1`, false},
		{`UPDATE recipient_intakes SET email = 'Ana@EXAMPLE.com' WHERE recipient_id = $1`, true},
		{`INSERT INTO recipients (id, company_id, email, deleted_at) SELECT $1, id, 'ana@example.com', now() FROM companies`, true},
		{`DELETE FROM recipient_intakes WHERE recipient_id = $1`, false},
	} {
		run(t, d, tt.change, person)
		if got, err := d.Store.NewLoader().Load(t.Context(), id); err != nil || got.RecipientKnown != tt.want {
			t.Errorf("%s: %+v, %v", tt.change, got, err)
		}
	}
}

// Each caller gets the email that it requested, or ErrNotFound.
func TestLoad_ManyAtOnce(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	loader := d.Store.NewLoader()
	ids := []uuid.UUID{uuid.New()}
	for range 20 {
		ids = append(ids, d.Accept(t, company, nil))
	}
	run(t, d, `UPDATE email_outbox SET target = 'mailing.process' WHERE id = $1`, ids[1])
	var wg sync.WaitGroup
	for range 10 {
		for i, id := range ids {
			wg.Go(func() {
				got, err := loader.Load(t.Context(), id)
				switch {
				case i < 2 && !errors.Is(err, store.ErrNotFound):
					t.Errorf("no such email: %v, %v", got, err)
				case i >= 2 && (err != nil || got.ID != id):
					t.Errorf("Load(%s) = %v, %v", id, got, err)
				}
			})
		}
	}
	wg.Wait()
	loader.Close()
}

// A body of more than 64 KiB is not loaded with the email: its size is, and it is read alone.
func TestLoad_LargeBody(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	loader := d.Store.NewLoader()
	for _, c := range []struct {
		html, text int
		large      bool
	}{{outbox.SmallBody, 0, false}, {0, outbox.SmallBody, false}, {outbox.SmallBody, 1, true}, {512 << 10, 512 << 10, true}} {
		id := d.Accept(t, company, func(e *outbox.NewEmail) {
			e.HTML, e.Text = strings.Repeat("ç", c.html/2), strings.Repeat("t", c.text) // two bytes each
		})
		got, err := loader.Load(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		loaded, size := len(got.HTML)+len(got.Text), int64(0)
		if c.large {
			size = int64(c.html + c.text)
		}
		if got.LargeBody != size || (loaded == 0) != c.large {
			t.Errorf("%d and %d bytes: %d are loaded, LargeBody is %d", c.html, c.text, loaded, got.LargeBody)
		}
		html, text, err := loader.ReadBody(t.Context(), id)
		if err != nil || html != strings.Repeat("ç", c.html/2) || text != strings.Repeat("t", c.text) {
			t.Errorf("%d and %d bytes were read, %v", len(html), len(text), err)
		}
	}
	if _, _, err := loader.ReadBody(t.Context(), uuid.New()); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("no such email: %v", err)
	}
}
