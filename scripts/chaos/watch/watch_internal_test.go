package watch

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"email-gateway/scripts/chaos/judge"
	"email-gateway/scripts/chaos/load"
	"email-gateway/scripts/chaos/stage"
)

const somebody = "pessoa1@" + load.Domain

func newWatch() *Watch {
	return &Watch{stage: &stage.Stage{}, broker: make(map[string]int64), Seen: Seen{RSS: make(map[string]int64)}}
}

// An address may stand in a task's payload, whatever is in there, and not beside it.
func TestWithoutPayloads(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		task string
		leak bool
	}{
		"payload":          {"\x0a\x0aemail:send\x12\xff\x01" + `{"to":"` + somebody + `","subject":"{\"}"}` + "\x1a\x24id", false},
		"two payloads":     {"a" + `{"to":"` + somebody + `"}` + "b" + `{"to":"` + somebody + `"}` + "c", false},
		"between two":      {"a" + `{"to":"a"}` + somebody + `{"to":"b"}` + "c", true},
		"behind it":        {"\x0aemail:send\x12\x10" + `{"to":"a"}` + "\x1a\x24 550 <" + somebody + ">", true},
		"before it":        {somebody + `{"to":"a"}`, true},
		"no payload":       {somebody, true},
		"a broken payload": {`{"to":"` + somebody, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWatch()
			w.addressesIn(withoutPayloads([]byte(tt.task)), "a task")
			if found := len(w.leaks) > 0; found != tt.leak {
				t.Errorf("found %q", w.leaks)
			}
		})
	}
}

// A file that grows is read from where it was left, and what lies across the border is seen.
func TestSearchFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "1.wal")
	w := newWatch()
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		w.searchFile(path)
	}
	first := strings.Repeat("x", 3000) + `{"mailingId":1} ` + somebody[:9]
	write(first)
	write(first)
	if len(w.leaks) != 0 || w.Seen.Messages != 1 || w.Seen.Broker != int64(len(first)) {
		t.Fatalf("after the first part: %+v, %q", w.Seen, w.leaks)
	}
	write(first + somebody[9:] + strings.Repeat("y", brokerPiece) + `{"mailingId":2}`)
	if len(w.leaks) == 0 || w.Seen.Messages != 2 {
		t.Errorf("after the second part: %+v, %q", w.Seen, w.leaks)
	}
	before := w.Seen.Broker
	write("new " + load.TaxID(1))
	if w.Seen.Broker != before+15 || !strings.Contains(w.leaks[len(w.leaks)-1], load.TaxID(1)) {
		t.Errorf("of a new file: %+v, %q", w.Seen, w.leaks)
	}
}

func TestTell(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		seen Seen
		want int
	}{
		"nothing":         {Seen{}, 0},
		"all at the edge": {Seen{Window: Window{Tasks: 1000, Limit: 1000}, RSS: map[string]int64{"api-1": 150 << 20, "worker-1": 250 << 20}}, 0},
		"window":          {Seen{Window: Window{Tasks: 1001, Limit: 1000}}, 1},
		"memory":          {Seen{RSS: map[string]int64{"api-1": 151 << 20, "worker-1": 251 << 20}}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWatch()
			w.stage.Programs = []*stage.Program{{Name: "api-1", Kind: "api"}, {Name: "worker-1", Kind: "worker"}}
			w.Seen = tt.seen
			j := judge.New(nil, load.Notes{}, nil)
			w.Tell(j)
			if got := j.Found(judge.Size); got != tt.want {
				t.Errorf("found %d, want %d", got, tt.want)
			}
		})
	}
	if got := configured().limit(); got != 564 {
		t.Errorf("the README's limit is not %d", got)
	}
}

func TestBelow(t *testing.T) {
	t.Parallel()
	w := newWatch()
	if got := w.Below(1); len(got) != 3 {
		t.Errorf("of nothing: %q", got)
	}
	w.Seen = Seen{Keys: 1, Metrics: 1}
	if got := w.Below(0); len(got) != 0 {
		t.Errorf("without mailings: %q", got)
	}
	if got := w.Below(2); len(got) != 1 || !strings.Contains(got[0], "RabbitMQ") {
		t.Errorf("with mailings: %q", got)
	}
}

// The limit is what the live workers report: the concurrency of all, the rate of one account.
func TestCapacity(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		reports []string
		want    int64
	}{
		"by rate":        {[]string{`{"concurrency":32,"sendRate":1000}`, `{"concurrency":32,"sendRate":1000}`}, 1064},
		"by concurrency": {[]string{`{"concurrency":32,"sendRate":14}`, `{"concurrency":8,"sendRate":14.5}`}, 120},
		"unreadable":     {[]string{`{"concurrency":32,"sendRate":1000}`, `{"concurrency":"many"}`}, 1032},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var c capacity
			for _, report := range tt.reports {
				c.add([]byte(report))
			}
			if got := c.limit(); got != tt.want {
				t.Errorf("%d, want %d", got, tt.want)
			}
		})
	}
}

// A window that became smaller still has the tasks of before for a while.
func TestCurrentLimit(t *testing.T) {
	t.Parallel()
	w, now := newWatch(), time.Now()
	if got := w.currentLimit(); got != configured().limit() {
		t.Errorf("before any report: %d", got)
	}
	for i, tt := range []struct {
		after       time.Duration
		limit, want int64
	}{{0, 1064, 1064}, {time.Second, 160, 1064}, {limitLife, 200, 1064}, {limitLife + time.Millisecond, 180, 200}, {time.Hour, 90, 90}} {
		w.addLimit(tt.limit, now.Add(tt.after))
		if got := w.currentLimit(); got != tt.want {
			t.Errorf("%d: %d, want %d", i, got, tt.want)
		}
	}
}

func TestWindow(t *testing.T) {
	t.Parallel()
	for tasks, want := range map[int64]bool{0: true, 900: true, 901: false, 1001: false} {
		if got := (Window{Tasks: tasks, Limit: 1000}).Spare(); got != want {
			t.Errorf("%d of 1000: %v", tasks, got)
		}
	}
}
