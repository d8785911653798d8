package sessim_test

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"email-gateway/scripts/sessim"
	"email-gateway/shared/waittest"
)

// clock is a clock controlled by tests.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func newClock() *clock { return &clock{now: time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)} }

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

func set(t *testing.T, sim *sessim.Server, st sessim.Settings) {
	t.Helper()
	if err := sim.SetSettings(st); err != nil {
		t.Fatal(err)
	}
}

func inject(t testing.TB, sim *sessim.Server, r sessim.Rule) {
	t.Helper()
	if err := sim.Inject(r); err != nil {
		t.Fatal(err)
	}
}

func TestEnforcedRate(t *testing.T) {
	t.Parallel()
	c := newClock()
	sim := sessim.New(sessim.Config{Clock: c.Now})
	set(t, sim, sessim.Settings{MaxSendRate: 3, EnforceRate: true})
	burst := func() (codes []int) {
		for range 5 {
			codes = append(codes, send(t, sim, body("ana@example.com")).Code)
		}
		return codes
	}
	if diff := cmp.Diff([]int{200, 200, 200, 429, 429}, burst()); diff != "" {
		t.Error("first second:\n" + diff)
	}
	c.advance(400 * time.Millisecond)
	if diff := cmp.Diff([]int{200, 429, 429, 429, 429}, burst()); diff != "" {
		t.Error("0.4 s later:\n" + diff)
	}
	c.advance(time.Hour)
	two := body("ana@example.com").with("Destination.CcAddresses", []string{"bia@example.com"})
	if got := []int{send(t, sim, two).Code, send(t, sim, two).Code}; !slices.Equal(got, []int{200, 429}) {
		t.Errorf("two recipients at a time: %v, want each recipient to count", got)
	}
	if got := sim.Ledger()[3]; got.Fault != "max-send-rate" || got.Error != "Maximum sending rate exceeded." {
		t.Errorf("entry = %+v", got)
	}
}

func TestDailyQuota(t *testing.T) {
	t.Parallel()
	c := newClock()
	sim := sessim.New(sessim.Config{Clock: c.Now})
	set(t, sim, sessim.Settings{DailyQuota: 3})
	inject(t, sim, sessim.Rule{Fault: "throttle", Times: 1})
	var codes []int
	for range 5 { // the first one is refused and uses no quota
		codes = append(codes, send(t, sim, body("ana@example.com")).Code)
		c.advance(time.Hour)
	}
	if diff := cmp.Diff([]int{429, 200, 200, 200, 400}, codes); diff != "" {
		t.Error(diff)
	}
	last := sim.Ledger()[4]
	if last.Fault != "daily-quota" || last.Error != "Daily message quota exceeded." {
		t.Errorf("entry = %+v", last)
	}
	c.advance(20*time.Hour + time.Minute) // 25 h after the start, 24 h after the first accepted
	codes = nil
	for range 2 {
		codes = append(codes, send(t, sim, body("ana@example.com")).Code)
	}
	if diff := cmp.Diff([]int{200, 400}, codes); diff != "" {
		t.Error("a day after the first:\n" + diff)
	}
}

func TestAccountStates(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		settings sessim.Settings
		status   int
	}{
		"sending-paused":    {sessim.Settings{Paused: true}, 400},
		"account-suspended": {sessim.Settings{Suspended: true, Paused: true}, 400},
		"unavailable-json":  {sessim.Settings{Unavailable: true, Suspended: true}, 503},
	} {
		sim := sessim.New(sessim.Config{})
		set(t, sim, c.settings)
		inject(t, sim, sessim.Rule{Fault: "throttle", Times: 1})
		if w := send(t, sim, body("ana@example.com")); w.Code != c.status || sim.Ledger()[0].Fault != name {
			t.Errorf("%s: %d, %+v", name, w.Code, sim.Ledger()[0])
		}
		if hits := sim.Rules()[0].Hits; hits != 0 {
			t.Errorf("%s: the refusal used up an injected fault", name)
		}
	}
}

func TestRuleMatching(t *testing.T) {
	t.Parallel()
	sim := sessim.New(sessim.Config{})
	inject(t, sim, sessim.Rule{Fault: "too-large", Match: sessim.Match{To: "ana@example.com", OutboxID: "o1"}})
	inject(t, sim, sessim.Rule{Fault: "throttle", Match: sessim.Match{To: "@slow.example"}, Times: 2})
	for i, c := range []struct {
		to, outboxID string
		want         int
	}{
		{"Ana <ANA@example.com>", "o1", 413},
		{"ana@example.com", "o2", 200},
		{"bia@example.com", "o1", 200},
		{"x@slow.example", "o3", 429},
		{"y@notslow.example", "o4", 200},
		{"y@slow.example", "o5", 429},
		{"z@slow.example", "o6", 200},
	} {
		if got := send(t, sim, body(c.to).tagged(c.outboxID)).Code; got != c.want {
			t.Errorf("%d: %s %s: %d, want %d", i, c.to, c.outboxID, got, c.want)
		}
	}
	if rules := sim.Rules(); rules[0].Hits != 1 || rules[1].Hits != 2 {
		t.Errorf("rules = %+v", rules)
	}
	sim.ClearFaults()
	if got := send(t, sim, body("ana@example.com").tagged("o1")).Code; got != 200 {
		t.Errorf("after ClearFaults: %d", got)
	}
}

func TestRuleRate(t *testing.T) {
	t.Parallel()
	sim := sessim.New(sessim.Config{})
	inject(t, sim, sessim.Rule{Fault: "throttle", Rate: 0.5})
	for range 200 {
		send(t, sim, body("ana@example.com"))
	}
	if n := sim.Summary().Accepted; n < 50 || n > 150 { // 7 standard deviations
		t.Errorf("%d of 200 accepted at rate 0.5", n)
	}
}

func TestInject_Refuses(t *testing.T) {
	t.Parallel()
	sim := sessim.New(sessim.Config{})
	for _, r := range []sessim.Rule{{}, {Fault: "no-such"}, {Fault: "throttle", Rate: 1.5}, {Fault: "throttle", Times: -1}, {Fault: "slow", DelayMS: -1}} {
		if sim.Inject(r) == nil {
			t.Errorf("%+v was accepted", r)
		}
	}
}

// The ledger's counts equal those of a list of all requests, while it drops old entries.
func TestLedger_CountsExactlyWithinItsMemory(t *testing.T) {
	t.Parallel()
	const memory = 40
	random := rand.New(rand.NewPCG(1, 2))
	sim := sessim.New(sessim.Config{LedgerEntries: memory})
	type sent struct {
		outboxID string
		accepted bool
	}
	var all []sent
	for range 2000 {
		s := sent{outboxID: fmt.Sprintf("o%d", random.IntN(25)), accepted: random.IntN(3) > 0}
		to := "ana@example.com"
		if !s.accepted {
			to = "sim-throttle@example.com"
		}
		send(t, sim, body(to).tagged(s.outboxID))
		all = append(all, s)

		remembered := all[max(0, len(all)-memory):]
		requests, accepted := map[string]int{}, map[string]int{}
		for _, r := range remembered {
			requests[r.outboxID]++
			if r.accepted {
				accepted[r.outboxID]++
			}
		}
		want := []sessim.Duplicate{}
		for id, n := range accepted {
			if n > 1 {
				want = append(want, sessim.Duplicate{OutboxID: id, Accepted: n})
			}
		}
		slices.SortFunc(want, func(a, b sessim.Duplicate) int { return strings.Compare(a.OutboxID, b.OutboxID) })
		sum := sim.Summary()
		if diff := cmp.Diff(want, sum.Duplicates); diff != "" {
			t.Fatalf("duplicates after %d requests:\n%s", len(all), diff)
		}
		if got := len(sim.Requests(s.outboxID)); got != requests[s.outboxID] {
			t.Fatalf("%d requests of %s remembered, want %d", got, s.outboxID, requests[s.outboxID])
		}
		if sum.DuplicateCount != len(want) || sum.Remembered != len(remembered) || sum.Requests != int64(len(all)) {
			t.Fatalf("summary = %+v after %d requests", sum, len(all))
		}
	}
	ledger := sim.Ledger()
	if ledger[0].Seq != 2000-memory+1 || ledger[memory-1].Seq != 2000 {
		t.Errorf("ledger holds %d to %d", ledger[0].Seq, ledger[memory-1].Seq)
	}
}

func TestInbox_Bounds(t *testing.T) {
	t.Parallel()
	sim := sessim.New(sessim.Config{InboxMails: 3, InboxBytes: 100_000})
	html := func(n int) request {
		return body("ana@example.com").with("Content.Simple.Body.Html.Data", strings.Repeat("x", n))
	}
	for range 5 {
		send(t, sim, html(10))
	}
	if n := len(sim.Inbox()); n != 3 {
		t.Errorf("%d mails kept, want 3", n)
	}
	send(t, sim, html(60_000))
	send(t, sim, html(60_001))
	if mails := sim.Inbox(); len(mails) != 1 || len(mails[0].HTML) != 60_001 {
		t.Errorf("%d mails kept, want only the last large one", len(mails))
	}
	send(t, sim, html(200_000))
	if mails := sim.Inbox(); len(mails) != 1 || len(mails[0].HTML) != 200_000 {
		t.Errorf("%d mails kept, want the one that exceeds the limit alone", len(mails))
	}
}

func TestReset(t *testing.T) {
	t.Parallel()
	sim := sessim.New(sessim.Config{MaxSendRate: 7})
	set(t, sim, sessim.Settings{MaxSendRate: 1, DailyQuota: 9, LatencyMS: 1})
	inject(t, sim, sessim.Rule{Fault: "throttle", Times: 1})
	send(t, sim, body("ana@example.com").tagged("o1"))
	send(t, sim, body("ana+sim-throttle-x1@example.com").tagged("o1"))
	sim.Reset()
	if len(sim.Ledger())+len(sim.Inbox())+len(sim.Rules())+len(sim.Requests("o1")) != 0 {
		t.Error("state is left after Reset")
	}
	if diff := cmp.Diff(sessim.Settings{MaxSendRate: 7, GetAccount: "ok"}, sim.Settings()); diff != "" {
		t.Error(diff)
	}
	sum := sim.Summary()
	if diff := cmp.Diff(sessim.Summary{ByStatus: map[int]int64{}, ByFault: map[string]int64{}, Duplicates: []sessim.Duplicate{}}, sum); diff != "" {
		t.Error(diff)
	}
	if got := send(t, sim, body("ana+sim-throttle-x1@example.com")).Code; got != http.StatusTooManyRequests {
		t.Errorf("the address's count was kept: %d", got)
	}
}

// Each mail is accepted once and each response counted, under concurrency.
func TestConcurrency(t *testing.T) {
	t.Parallel()
	sim := sessim.New(sessim.Config{LedgerEntries: 500, InboxMails: 50})
	var senders, readers sync.WaitGroup
	done := make(chan struct{})
	for range 2 {
		readers.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
					sim.Ledger()
					do(t, sim, http.MethodGet, "/", "")
					do(t, sim, http.MethodGet, "/sim/ledger/summary", "")
				}
			}
		})
	}
	for n := range 4 {
		senders.Go(func() {
			for i := range 250 {
				send(t, sim, body("ana@example.com").tagged(fmt.Sprintf("o%d-%d", n, i)))
			}
		})
	}
	senders.Wait()
	close(done)
	readers.Wait()
	sum := sim.Summary()
	if sum.Requests != 1000 || sum.Accepted != 1000 || sum.Answered != 1000 || sum.AcceptedOutboxIDs != 1000 || len(sum.Duplicates) != 0 {
		t.Errorf("summary = %+v", sum)
	}
	ids := map[string]bool{}
	for _, e := range sim.Ledger() {
		ids[e.MessageID] = true
	}
	if len(ids) != 500 {
		t.Errorf("%d different message ids among 500 mails", len(ids))
	}
}

// A client that gives up gets no response, which the ledger records.
func TestLatency_ClientLeaves(t *testing.T) {
	t.Parallel()
	sim, client := start(t, sessim.Config{})
	set(t, sim, sessim.Settings{LatencyMS: 60_000})
	failed := make(chan error, 1)
	go func() {
		_, err := client.SendEmail(t.Context(), input("ana@example.com", "o1"))
		failed <- err
	}()
	waittest.Until(t, "the request is stored", func() bool { return len(sim.Requests("o1")) == 1 })
	sim.Close() // as a server that is being stopped
	if err := <-failed; err == nil {
		t.Fatal("the call succeeded")
	}
	if e := sim.Requests("o1")[0]; !e.Accepted || e.Answered {
		t.Errorf("entry = %+v", e)
	}
}

func TestAfterBytes(t *testing.T) {
	t.Parallel()
	sim := sessim.New(sessim.Config{})
	server := httptest.NewServer(sim)
	defer server.Close()
	inject(t, sim, sessim.Rule{Fault: "truncated", AfterBytes: 5, Times: 1})
	if got := send(t, sim, body("ana@example.com")).Body.String(); got != `{"Mes` {
		t.Errorf("body = %q", got)
	}
	inject(t, sim, sessim.Rule{Fault: "truncated"})
	if got := send(t, sim, body("ana@example.com")).Body.String(); len(got) != 38 {
		t.Errorf("body = %q, want half of it", got)
	}
}
