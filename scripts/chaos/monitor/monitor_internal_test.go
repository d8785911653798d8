package monitor

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"email-gateway/scripts/chaos/checker"
	"email-gateway/scripts/chaos/cluster"
	"email-gateway/scripts/chaos/load"
)

const someRecipient = "pessoa1@" + load.Domain

func newMonitor() *Monitor {
	return &Monitor{cluster: &cluster.Cluster{}, broker: make(map[string]int64), Seen: Seen{RSS: make(map[string]int64)}}
}

// A task's payload may contain an address, the rest of the task may not.
func TestWithoutPayloads(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		task string
		leak bool
	}{
		"payload":          {"\x0a\x0aemail:send\x12\xff\x01" + `{"to":"` + someRecipient + `","subject":"{\"}"}` + "\x1a\x24id", false},
		"two payloads":     {"a" + `{"to":"` + someRecipient + `"}` + "b" + `{"to":"` + someRecipient + `"}` + "c", false},
		"between two":      {"a" + `{"to":"a"}` + someRecipient + `{"to":"b"}` + "c", true},
		"after it":         {"\x0aemail:send\x12\x10" + `{"to":"a"}` + "\x1a\x24 550 <" + someRecipient + ">", true},
		"before it":        {someRecipient + `{"to":"a"}`, true},
		"no payload":       {someRecipient, true},
		"a broken payload": {`{"to":"` + someRecipient, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newMonitor()
			m.addressesIn(withoutPayloads([]byte(tt.task)), "a task")
			if found := len(m.leaks) > 0; found != tt.leak {
				t.Errorf("found %q", m.leaks)
			}
		})
	}
}

// A growing file is read from the last position, and a match across the border is found.
func TestSearchFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "1.wal")
	m := newMonitor()
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		m.searchFile(path)
	}
	first := strings.Repeat("x", 3000) + `{"mailingId":1} ` + someRecipient[:9]
	write(first)
	write(first)
	if len(m.leaks) != 0 || m.Seen.Messages != 1 || m.Seen.Broker != int64(len(first)) {
		t.Fatalf("after the first part: %+v, %q", m.Seen, m.leaks)
	}
	write(first + someRecipient[9:] + strings.Repeat("y", brokerPiece) + `{"mailingId":2}`)
	if len(m.leaks) == 0 || m.Seen.Messages != 2 {
		t.Errorf("after the second part: %+v, %q", m.Seen, m.leaks)
	}
	before := m.Seen.Broker
	write("new " + load.TaxID(1))
	if m.Seen.Broker != before+15 || !strings.Contains(m.leaks[len(m.leaks)-1], load.TaxID(1)) {
		t.Errorf("of a new file: %+v, %q", m.Seen, m.leaks)
	}
}

func TestTell(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		seen Seen
		want int
	}{
		"nothing":          {Seen{}, 0},
		"all at the limit": {Seen{Window: Window{Tasks: 1000, Limit: 1000}, RSS: map[string]int64{"api-1": 150 << 20, "worker-1": 250 << 20}}, 0},
		"window":           {Seen{Window: Window{Tasks: 1001, Limit: 1000}}, 1},
		"memory":           {Seen{RSS: map[string]int64{"api-1": 151 << 20, "worker-1": 251 << 20}}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newMonitor()
			m.cluster.Programs = []*cluster.Program{{Name: "api-1", Kind: "api"}, {Name: "worker-1", Kind: "worker"}}
			m.Seen = tt.seen
			c := checker.New(nil, load.Records{}, nil)
			m.Report(c)
			if got := c.Findings.Count(checker.Size); got != tt.want {
				t.Errorf("found %d, want %d", got, tt.want)
			}
		})
	}
	if got := limitAt(cluster.SendRate); got != 503 {
		t.Errorf("the README's limit is not %d", got)
	}
}

func TestBelow(t *testing.T) {
	t.Parallel()
	m := newMonitor()
	if got := m.Below(1); len(got) != 3 {
		t.Errorf("of nothing: %q", got)
	}
	m.Seen = Seen{Keys: 1, Metrics: 1}
	if got := m.Below(0); len(got) != 0 {
		t.Errorf("without mailings: %q", got)
	}
	if got := m.Below(2); len(got) != 1 || !strings.Contains(got[0], "RabbitMQ") {
		t.Errorf("with mailings: %q", got)
	}
}

// After the window shrinks, the old limit applies for a while.
func TestCurrentLimit(t *testing.T) {
	t.Parallel()
	w, now := newMonitor(), time.Now()
	if got := w.currentLimit(); got != limitAt(cluster.SendRate) {
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
