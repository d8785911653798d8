package httpapi_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/google/uuid"

	"email-gateway/shared/store/storetest"
)

func (g *gateway) moveMailing(tb testing.TB, id, body string) reply {
	tb.Helper()
	return g.do(tb, call{Method: http.MethodPatch, Path: "/mailings/" + id, Body: body})
}

// A rescheduled mailing shows its new time, its job is due then, and repeating the upload still returns its
// response.
func TestMailing_Move(t *testing.T) {
	t.Parallel()
	g := start(t, nil)
	id := g.mail(t, given(part{name: "sendAt", value: time.Now().Add(48 * time.Hour).Format(time.RFC3339)}))
	at := time.Now().Add(72 * time.Hour).UTC().Truncate(time.Second)
	r := g.moveMailing(t, id, sendAt(at))
	want := at.Format(time.RFC3339)
	if shown := r.json(t); r.Status != http.StatusOK || shown["sendAt"] != want || shown["startsAt"] != want || shown["status"] != "QUEUED" {
		t.Errorf("%d %s", r.Status, r.Body)
	}
	if n := storetest.Ask[int](t, g.Database, `SELECT count(*) FROM email_outbox WHERE target = 'mailing.process' AND next_at = $1`, at); n != 1 {
		t.Errorf("%d jobs for the new time", n)
	}
	wakes := g.Wakes.Load()
	shown := g.moveMailing(t, id, `{"sendAt": "2020-01-01T00:00:00Z"}`).json(t)
	if shown["startsAt"] != shown["updatedAt"] || shown["sendAt"] != shown["updatedAt"] || g.Wakes.Load() != wakes+1 {
		t.Errorf("moved to a past time: %v, %d dispatcher notifications", shown, g.Wakes.Load()-wakes)
	}
	for body, status := range map[string]int{
		`{}`: 422, `{"sendAt": "tomorrow"}`: 422, `{"sendAt": "2999-01-01T00:00:00Z"}`: 422, `{"subject": "x"}`: 422, `{`: 400,
	} {
		if r := g.moveMailing(t, id, body); r.Status != status {
			t.Errorf("%s: %d %s", body, r.Status, r.Body)
		}
	}
	if r := g.moveMailing(t, uuid.NewString(), sendAt(at)); r.Status != http.StatusNotFound {
		t.Errorf("a mailing id that does not exist: %d %s", r.Status, r.Body)
	}
	g.Run(t, `UPDATE mailings SET processed_lines = 1 WHERE id = $1`, id)
	if r := g.moveMailing(t, id, sendAt(at)); r.Status != http.StatusConflict || r.problem(t).Code != "MAILING_STATE" {
		t.Errorf("moving a mailing that has begun: %d %s", r.Status, r.Body)
	}
}

// A mailing that is held, or was paused before it started, is rescheduled and stays held or paused.
func TestMailing_MoveHeld(t *testing.T) {
	t.Parallel()
	g := start(t, nil)
	at := time.Now().Add(72 * time.Hour).UTC().Truncate(time.Second)
	id := g.mail(t, given(part{name: "start", value: "false"}))
	if shown := g.moveMailing(t, id, sendAt(at)).json(t); shown["status"] != "PAUSED" || shown["sendAt"] != at.Format(time.RFC3339) || shown["startsAt"] != nil {
		t.Errorf("%v", shown)
	}
	started := g.do(t, call{Method: http.MethodPost, Path: "/mailings/" + id + "/start"}).json(t)
	if n := storetest.Ask[int](t, g.Database, `SELECT count(*) FROM email_outbox WHERE next_at = $1`, at); n != 1 || started["startsAt"] != at.Format(time.RFC3339) {
		t.Errorf("%v; %d jobs for the new time", started, n)
	}
}
