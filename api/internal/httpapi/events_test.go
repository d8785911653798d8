package httpapi_test

import (
	"encoding/json"
	"log/slog"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"

	"email-gateway/api/internal/httpapi"
	eventfeed "email-gateway/api/internal/httpapi/events"
	"email-gateway/shared/store/event"
	"email-gateway/shared/waittest"
)

// eventAnswer is the response of GET /v1/events.
type eventAnswer struct {
	Events []struct {
		ID, Type, OutboxID, To, RequestID string
		Seq                               int
	}
	NextCursor, OldestCursor string
	HasMore                  bool
}

// events requests events with the query.
func (g *gateway) events(tb testing.TB, query string) eventAnswer {
	tb.Helper()
	r := g.do(tb, call{Path: "/v1/events?" + query})
	if r.Status != http.StatusOK {
		tb.Fatalf("%s: %d %s", query, r.Status, r.Body)
	}
	var answer eventAnswer
	if err := json.Unmarshal([]byte(r.Body), &answer); err != nil {
		tb.Fatal(err)
	}
	return answer
}

// cancelNow cancels an email that no worker has received.
func (g *gateway) cancelNow(tb testing.TB, id string) {
	tb.Helper()
	if r := g.do(tb, call{Method: http.MethodPost, Path: "/v1/email/" + id + "/cancel"}); r.Status != http.StatusOK {
		tb.Fatalf("%d %s", r.Status, r.Body)
	}
}

func (a eventAnswer) types() []string {
	types := make([]string, len(a.Events))
	for i, e := range a.Events {
		types[i] = e.Type
	}
	return types
}

func TestEvents(t *testing.T) {
	t.Parallel()
	g := start(t, nil)
	if empty := g.events(t, ""); len(empty.Events) != 0 || empty.HasMore || empty.NextCursor == "" {
		t.Errorf("before the first event: %+v", empty)
	}
	first, second := g.accept(t, emailBody(nil)), g.accept(t, emailBody(nil))
	g.Programs.claim(t, first)
	g.Programs.claim(t, second)
	if early := g.events(t, ""); len(early.Events) != 0 {
		t.Errorf("before the dispatcher has assigned positions: %+v", early)
	}
	g.Programs.assign(t)
	all := g.events(t, "")
	want := []string{"RECEIVED", "VALIDATED", "SENT_ATTEMPT", "RECEIVED", "VALIDATED", "SENT_ATTEMPT"}
	if !slices.Equal(all.types(), want) || all.HasMore {
		t.Fatalf("%+v", all)
	}
	if e := all.Events[3]; e.OutboxID != second || e.ID != second+".1" || e.Seq != 1 || e.To == "" || e.RequestID == "" {
		t.Errorf("%+v", e)
	}
	var paged []string
	for query := "limit=4"; ; {
		page := g.events(t, query)
		paged = append(paged, page.types()...)
		if !page.HasMore {
			break
		}
		query = "limit=4&after=" + page.NextCursor
	}
	if !slices.Equal(paged, want) {
		t.Errorf("in pages: %v", paged)
	}
	if some := g.events(t, "types=VALIDATED,SENT"); !slices.Equal(some.types(), []string{"VALIDATED", "VALIDATED"}) || some.NextCursor != all.NextCursor {
		t.Errorf("of two types: %+v", some)
	}
	latest := g.events(t, "after=latest")
	if len(latest.Events) != 0 || latest.NextCursor != all.NextCursor {
		t.Errorf("latest: %+v", latest)
	}
	g.cancelNow(t, g.accept(t, emailBody(nil)))
	g.Programs.assign(t)
	if newer := g.events(t, "after="+latest.NextCursor); !slices.Equal(newer.types(), []string{"CANCELLED"}) {
		t.Errorf("events after the cursor of latest: %+v", newer)
	}
	foreign := g.do(t, call{Path: "/v1/events", Key: g.newKey(t, g.Database.Company(t), nil).String()})
	if foreign.Status != http.StatusOK || len(foreign.json(t)["events"].([]any)) != 0 {
		t.Errorf("another company: %d %s", foreign.Status, foreign.Body)
	}
}

func TestEvents_Refused(t *testing.T) {
	t.Parallel()
	g := start(t, nil)
	for query, field := range map[string]string{
		"after=x": "after", "types=SENT,DROPPED": "types", "wait=31": "wait", "wait=-1": "wait", "limit=0": "limit", "limit=101": "limit", "from=1": "from",
	} {
		r := g.do(t, call{Path: "/v1/events?" + query})
		if r.Status != http.StatusUnprocessableEntity || r.json(t)["errors"].([]any)[0].(map[string]any)["field"] != field {
			t.Errorf("%s: %d %s", query, r.Status, r.Body)
		}
	}
	g.Programs.claim(t, g.accept(t, emailBody(nil)))
	g.Programs.assign(t)
	old := g.events(t, "limit=1").NextCursor
	if _, err := g.SQL.ExecContext(t.Context(), `UPDATE event_feed SET created_at = now() - interval '31 days'`); err != nil {
		t.Fatal(err)
	}
	g.Programs.claim(t, g.accept(t, emailBody(nil)))
	g.Programs.assign(t)
	g.Programs.claim(t, g.accept(t, emailBody(nil)))
	g.Programs.assign(t)
	if _, err := g.SQL.ExecContext(t.Context(), `UPDATE event_feed SET created_at = now() - interval '31 days' WHERE position < (SELECT newest FROM event_positions)`); err != nil {
		t.Fatal(err)
	}
	if n, err := event.New(g.Store.DB()).Purge(t.Context(), 30*24*time.Hour, 10); err != nil || n != 2 {
		t.Fatal(n, err)
	}
	r := g.do(t, call{Path: "/v1/events?after=" + old})
	oldest, _ := r.json(t)["oldestCursor"].(string)
	if r.Status != http.StatusGone || r.json(t)["code"] != "CURSOR_EXPIRED" || oldest == "" {
		t.Fatalf("%d %s", r.Status, r.Body)
	}
	if rest := g.events(t, "after="+oldest); len(rest.Events) != 3 {
		t.Errorf("events after oldestCursor: %+v", rest)
	}
}

// A cursor of a position that a restore or a failover lost has to wait for a dispatcher, and is valid afterwards.
func TestEvents_LostPosition(t *testing.T) {
	t.Parallel()
	g := start(t, nil)
	var cursor string
	for range 2 {
		g.Programs.claim(t, g.accept(t, emailBody(nil)))
		g.Programs.assign(t)
		cursor = g.events(t, "").NextCursor
	}
	g.Run(t, `DELETE FROM event_feed WHERE position = (SELECT newest FROM event_positions)`)
	g.Run(t, `UPDATE event_positions SET newest = newest - 1, history = 'of the lost server'`)
	if r := g.do(t, call{Path: "/v1/events?after=" + cursor}); r.Status != http.StatusServiceUnavailable || r.problem(t).Code != "EVENTS_UNAVAILABLE" || r.Header.Get("Retry-After") == "" {
		t.Errorf("before a dispatcher has run: %d %s", r.Status, r.Body)
	}
	g.Programs.assign(t)
	if page := g.events(t, "after="+cursor); len(page.Events) != 0 {
		t.Errorf("afterwards: %+v", page)
	}
}

// TestEvents_Wait: a waiting request is answered when an event comes, holds no connection of the
// database, and ends when the api stops. A company's 17th waiting request is answered at once, and
// so is one that begins while the api stops.
func TestEvents_Wait(t *testing.T) {
	t.Parallel()
	var polls *eventfeed.Polls
	g := start(t, func(p *httpapi.Params) {
		polls = eventfeed.NewPolls(slog.New(slog.DiscardHandler), p.Feed)
		p.Polls = polls
	})
	if err := polls.Start(t.Context(), func(error) {}); err != nil {
		t.Fatal(err)
	}
	answers := make(chan eventAnswer)
	wait := func(n int) {
		for range n {
			go func() { answers <- g.events(t, "wait=30&types=CANCELLED") }()
		}
		waittest.Until(t, "requests wait", func() bool { return polls.Waiting() == n })
	}
	wait(1)
	g.Programs.claim(t, g.accept(t, emailBody(nil))) // of other types
	g.Programs.assign(t)
	id := g.accept(t, emailBody(nil))
	g.cancelNow(t, id)
	g.Programs.assign(t)
	if answer := <-answers; len(answer.Events) != 1 || answer.Events[0].OutboxID != uuid.MustParse(id).String() {
		t.Errorf("%+v", answer)
	}
	if polls.Waiting() != 0 {
		t.Errorf("%d requests still wait", polls.Waiting())
	}

	end := g.events(t, "after=latest").NextCursor
	idle := func(n int) {
		for range n {
			go func() { answers <- g.events(t, "wait=30&after="+end) }()
		}
	}
	idle(16)
	waittest.Until(t, "requests wait", func() bool { return polls.Waiting() == 16 })
	if inUse := g.Store.DB().Stats().InUse; inUse > 4 {
		t.Errorf("16 waiting requests hold %d connections", inUse)
	}
	idle(1)
	if answer := <-answers; len(answer.Events) != 0 || answer.NextCursor != end {
		t.Errorf("the 17th: %+v", answer)
	}
	if err := polls.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	idle(1)
	for range 17 {
		if answer := <-answers; len(answer.Events) != 0 {
			t.Errorf("at the stop: %+v", answer)
		}
	}
}

// An event of the company is in the feed in order, and names no email. Mailings show that they are paused, and
// why they cannot be resumed.
func TestEvents_OfCompany(t *testing.T) {
	t.Parallel()
	g := start(t, nil)
	id := g.mail(t, mailingForm())
	g.Run(t, `UPDATE companies SET mailings_paused_at = now() WHERE id = $1`, g.Company)
	g.Run(t, `INSERT INTO company_events (id, company_id, type, metadata) VALUES (gen_random_uuid(), $1, 'MAILINGS_PAUSED', '{"rule": "bounces_1h"}')`, g.Company)
	g.Programs.assign(t)
	page := g.events(t, "types=MAILINGS_PAUSED,SENT")
	if len(page.Events) != 1 || page.Events[0].Type != "MAILINGS_PAUSED" || page.Events[0].OutboxID != "" {
		t.Errorf("%+v", page)
	}
	if more := g.events(t, "after="+page.NextCursor); len(more.Events) != 0 {
		t.Errorf("events after the cursor: %+v", more)
	}
	shown := g.do(t, call{Path: "/mailings/" + id}).json(t)
	if shown["waitingFor"] != "reputation" || shown["waitingUntil"] != nil || shown["status"] != "QUEUED" {
		t.Errorf("%v", shown)
	}
	letter := uuid.NewString()
	g.Run(t, `INSERT INTO dead_letters (id, company_id, mailing_id, target, reason, payload) VALUES ($1, $2, $3, 'mailing.process', 'MAILING_JOB_FAILED', '{}')`, letter, g.Company, id)
	for _, action := range []string{"/mailings/" + id + "/start", "/mailings/" + id + "/resume", "/mailings/" + id + "/retry-failed", "/v1/dead-letters/" + letter + "/retry"} {
		r := g.do(t, call{Method: http.MethodPost, Path: action})
		if r.Status != http.StatusConflict || r.json(t)["code"] != "MAILINGS_PAUSED" {
			t.Errorf("%s: %d %s", action, r.Status, r.Body)
		}
	}
	for _, action := range []string{"pause", "cancel"} {
		if r := g.do(t, call{Method: http.MethodPost, Path: "/mailings/" + id + "/" + action}); r.Status != http.StatusOK {
			t.Errorf("%s: %d %s", action, r.Status, r.Body)
		}
	}
}
