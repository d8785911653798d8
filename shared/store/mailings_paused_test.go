package store_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"

	"email-gateway/shared/store/mailing"
	"email-gateway/shared/store/quota"
	"email-gateway/shared/store/storetest"
)

// While the reputation guard has paused a company's mailings no email of one is taken or claimed, whether
// the mailing was uploaded before or after. Single emails, and other companies, are not affected. A tenant can pause
// and cancel mailings, but neither start nor resume them.
func TestMailingsPaused(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company, other := d.Company(t), d.Company(t)
	emailOf := func(company, mailingID uuid.UUID) uuid.UUID {
		id := d.Accept(t, company, nil)
		run(t, d, `UPDATE email_outbox SET lane_id = (SELECT id FROM dispatch_lanes WHERE mailing_id = $2) WHERE id = $1`, id, mailingID)
		return id
	}
	before := d.Mailing(t, company, 1, nil)
	held := d.Mailing(t, company, 1, func(m *mailing.NewMailing) { m.Held = true })
	run(t, d, `UPDATE companies SET mailings_paused_at = now() WHERE id = $1`, company)
	after := d.Mailing(t, company, 1, nil)
	unaffected := d.Mailing(t, other, 1, nil)
	stopped := []uuid.UUID{emailOf(company, before), emailOf(company, after)}
	going := []uuid.UUID{d.Accept(t, company, nil), emailOf(other, unaffected), d.Accept(t, other, nil)}

	lanesOf := func(ids []uuid.UUID) (lanes []int64) {
		for _, id := range ids {
			lanes = append(lanes, ask[int64](t, d, `SELECT lane_id FROM email_outbox WHERE id = $1`, id))
		}
		return lanes
	}
	open := func() (open []int64) {
		found, err := d.Store.WaitingLanes(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range found.Lanes {
			open = append(open, l.ID)
		}
		return open
	}
	claim := func(id uuid.UUID) bool {
		owner := ask[uuid.UUID](t, d, `SELECT company_id FROM email_outbox WHERE id = $1`, id)
		done, err := d.Store.NewAdvancer().Advance(t.Context(), storetest.ClaimOf(owner, id, uuid.New(), "CUST-1"))
		if err != nil {
			t.Fatal(err)
		}
		return done.Applied
	}
	loaded := func(id uuid.UUID) bool {
		row, err := d.Store.NewLoader().Load(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		return row.LaneOpen
	}
	lanes := open()
	for i, lane := range lanesOf(stopped) {
		if slices.Contains(lanes, lane) || loaded(stopped[i]) || claim(stopped[i]) {
			t.Errorf("email %d of a paused mailing is sent", i)
		}
	}
	for i, lane := range lanesOf(going) {
		if !slices.Contains(lanes, lane) || !loaded(going[i]) || !claim(going[i]) {
			t.Errorf("email %d, of no paused mailing, is not sent", i)
		}
	}

	for id, want := range map[uuid.UUID]quota.Quota{before: mailing.WaitsForReputation, after: mailing.WaitsForReputation, held: ""} {
		if m, err := d.Store.FindMailing(t.Context(), company, id); err != nil || m.WaitsFor(time.Now()).For != want {
			t.Errorf("waits for %q, %v, want %q", m.WaitsFor(time.Now()).For, err, want)
		}
	}
	if room, err := d.Store.FindMailingRoom(t.Context(), company); err != nil || !room.Paused {
		t.Errorf("room %+v, %v", room, err)
	}
	var refused *mailing.PausedError
	if _, err := d.Store.StartMailing(t.Context(), company, held); !errors.As(err, &refused) {
		t.Errorf("start: %v", err)
	}
	if m, err := d.Store.PauseMailing(t.Context(), company, before); err != nil || m.Status != mailing.Paused {
		t.Errorf("pause: %+v, %v", m.Status, err)
	}
	for name, control := range controls(d.Store) {
		if name == "pause" || name == "cancel" {
			continue
		}
		if _, err := control(t.Context(), company, before); !errors.As(err, &refused) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if m, err := d.Store.CancelMailing(t.Context(), company, after); err != nil || m.Status != mailing.Cancelled {
		t.Errorf("cancel: %+v, %v", m.Status, err)
	}

	run(t, d, `UPDATE companies SET mailings_paused_at = NULL`)
	if m, err := d.Store.ResumeMailing(t.Context(), company, before); err != nil || m.WaitsFor(time.Now()).For != "" {
		t.Errorf("resume: %+v, %v", m.Status, err)
	}
	if !slices.Contains(open(), lanesOf(stopped)[0]) || !claim(stopped[0]) {
		t.Error("after the pause the email is not sent")
	}
}
