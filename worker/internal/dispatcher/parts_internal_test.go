package dispatcher

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"email-gateway/shared/email"
	"email-gateway/shared/store/dispatch"
	"email-gateway/shared/store/process"
)

func TestPayload(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 4, 5, 6, 7, 890_000_000, time.FixedZone("BRT", -3*3600))
	const filled = `"attempt":%d,"enqueuedAt":"2026-03-04T08:06:07.89Z"}`
	for _, test := range []struct {
		name                string
		payload             string
		attempts, throttles int
		want                string
	}{
		{"first try", `{"to": "a@b.c", "attempt": 0, "enqueuedAt": "0001-01-01T00:00:00Z", "new": {"b": [1, 2]}}`, 0, 0, `{"to": "a@b.c","new": {"b": [1, 2]},` + fmt.Sprintf(filled, 1)},
		{"throttled tries do not count", `{"attempt":1,"to":"a@b.c"}`, 5, 3, `{"to":"a@b.c",` + fmt.Sprintf(filled, 3)},
		{"at most the last", `{"a":1}`, 9, 0, `{"a":1,` + fmt.Sprintf(filled, 5)},
		{"at least the first", `{"a":1}`, 0, 9, `{"a":1,` + fmt.Sprintf(filled, 1)},
		{"an empty object", `{}`, 0, 0, `{` + fmt.Sprintf(filled, 1)},
		{"only what is replaced", `{"enqueuedAt": null, "attempt": {"a": 1}}`, 0, 0, `{` + fmt.Sprintf(filled, 1)},
		{"the names nested", `{"headers": {"attempt": "1", "x": "}"}, "attempts": 2}`, 0, 0, `{"headers": {"attempt": "1", "x": "}"},"attempts": 2,` + fmt.Sprintf(filled, 1)},
		{"the names in a text", `{"subject": "\\\", \"attempt\": 1, {", "attempt": 0}`, 0, 0, `{"subject": "\\\", \"attempt\": 1, {",` + fmt.Sprintf(filled, 1)},
		{"an array", `[1]`, 0, 0, `[1]`},
		{"a text", `"text"`, 0, 0, `"text"`},
		{"null", `null`, 0, 0, `null`},
		{"truncated", `{"to": "a@b.c`, 0, 0, `{"to": "a@b.c`},
		{"nothing", ``, 0, 0, ``},
	} {
		row := dispatch.DueRow{Payload: json.RawMessage(test.payload), Attempts: test.attempts, Throttles: test.throttles}
		filled, trace := fillIn(row, 5, now)
		if diff := cmp.Diff(test.want, string(filled)); diff != "" || trace != "" {
			t.Errorf("%s (-want +got)\n%s, trace %q", test.name, diff, trace)
		}
	}
}

// The trace is removed from the payload, whatever its value.
func TestPayload_Trace(t *testing.T) {
	t.Parallel()
	const trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	for _, test := range []struct{ payload, rest, trace string }{
		{`{"to": "a@b.c", "traceparent": "` + trace + `", "x": 1}`, `{"to": "a@b.c","x": 1}`, trace},
		{`{"traceparent":"` + trace + `"}`, `{}`, trace},
		{`{"traceparent": "ana@example.com", "x": 1}`, `{"x": 1}`, ""},
		{`{"traceparent": {"to": "` + trace + `"}, "x": 1}`, `{"x": 1}`, ""},
		{`{"headers": {"traceparent": "` + trace + `"}}`, `{"headers": {"traceparent": "` + trace + `"}}`, ""},
		{`{"subject": "\"traceparent\": 1"}`, `{"subject": "\"traceparent\": 1"}`, ""},
		{`{"x": 1}`, `{"x": 1}`, ""},
		{`"traceparent"`, `"traceparent"`, ""},
	} {
		rest, got := takeTrace([]byte(test.payload))
		if string(rest) != test.rest || got != test.trace {
			t.Errorf("of %s: %s and %q, want %s and %q", test.payload, rest, got, test.rest, test.trace)
		}
		filled, got := fillIn(dispatch.DueRow{Payload: json.RawMessage(test.payload)}, 5, time.Now())
		if got != test.trace || got != "" && bytes.Contains(filled, []byte("traceparent")) {
			t.Errorf("filled in: %s and %q", filled, got)
		}
		for _, queue := range email.BulkQueues() {
			if job, got := bulkJob(queue)(dispatch.DueRow{Payload: json.RawMessage(test.payload)}, time.Now()); got != test.trace || got != "" && bytes.Contains(job, []byte("traceparent")) {
				t.Errorf("on %s: %s and %q", queue, job, got)
			}
		}
	}
}

func TestCapacity(t *testing.T) {
	t.Parallel()
	details := func(text string) json.RawMessage { return json.RawMessage(text) }
	needed, sendRate := capacity([]process.Status{
		{Service: "worker", Age: time.Second, Details: details(`{"neededMs":2000,"concurrency":20,"sendRate":15,"redis":{"status":"connected"}}`)},
		{Service: "worker", Age: time.Second, Details: details(`{"neededMs":0,"concurrency":1,"sendRate":14.5}`)},
		{Service: "worker", Age: 14 * time.Second, Details: details(`{"concurrency":30,"sendRate":14}`)},
		{Service: "worker", Age: 16 * time.Second, Details: details(`{"concurrency":1000,"sendRate":1000}`)},
		{Service: "worker", Age: time.Second, Details: details(`{"neededMs":-5}`)},
		{Service: "worker", Age: time.Second, Details: details(`{}`)},
		{Service: "worker", Age: time.Second, Details: details(`[]`)},
		{Service: "dispatcher", Age: time.Second, Details: details(`{"concurrency":1000,"sendRate":1000}`)},
	})
	if needed != 36 || sendRate != 15 {
		t.Errorf("%g emails in flight, send rate %g; want 36 and 15", needed, sendRate)
	}
}

// The number of workers does not change the window.
func TestCapacity_ManyWorkers(t *testing.T) {
	t.Parallel()
	var statuses []process.Status
	for range 50 {
		statuses = append(statuses, process.Status{Service: "worker", Details: json.RawMessage(`{"neededMs":750,"concurrency":1,"sendRate":14}`)})
		if got := windowSize(capacity(statuses)); got < 21 || got > 22 {
			t.Errorf("%d tasks with %d workers, want 1.5 s at 14/s", got, len(statuses))
		}
	}
}

func TestWindowSize(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		needed, sendRate float64
		want             int64
	}{
		{10, 100, 85}, {200, 100, 275}, {1.05, 14, 12}, {0, 14.2, 11}, {0.08, 1, 1}, {0, 0, 1},
	} {
		if got := windowSize(test.needed, test.sendRate); got != test.want {
			t.Errorf("%g emails in flight, %g per second: %d, want %d", test.needed, test.sendRate, got, test.want)
		}
	}
}

// All other members of a job are kept.
func TestPayload_KeepsOtherMembers(t *testing.T) {
	t.Parallel()
	value := rapid.OneOf(
		rapid.Map(rapid.String(), func(s string) any { return s }),
		rapid.Map(rapid.Float64(), func(f float64) any { return f }),
		rapid.Map(rapid.MapOf(rapid.String(), rapid.SliceOf(rapid.String())), func(m map[string][]string) any { return m }),
	)
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.OneOf(rapid.String(), rapid.SampledFrom([]string{"attempt", "enqueuedAt", "to"}))
		text, err := json.Marshal(rapid.MapOf(name, value).Draw(t, "job"))
		if err != nil {
			t.Fatal(err)
		}
		var want, got map[string]any
		if err := json.Unmarshal(text, &want); err != nil {
			t.Fatal(err)
		}
		want["attempt"], want["enqueuedAt"] = 2.0, "2026-03-04T00:00:00Z"
		row := dispatch.DueRow{Payload: text, Attempts: 1}
		filled, _ := fillIn(row, 5, time.Date(2026, 3, 4, 0, 0, 0, 0, time.UTC))
		if err := json.Unmarshal(filled, &got); err != nil {
			t.Fatalf("%s: %v", filled, err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("(-want +got)\n%s", diff)
		}
	})
}

// takes is a source that counts takes and returns no row.
type takes struct {
	source
	n int
}

func (s *takes) take(context.Context, []dispatch.LaneTake) (dispatch.Batch, error) {
	s.n++
	return dispatch.Batch{}, nil
}

func (s *takes) idle(context.Context) error { return nil }

// A second concurrent batch is for lanes that have more rows than one takes: after a wake-up for a single email it
// would find none.
func TestFeeder_SecondBatch(t *testing.T) {
	t.Parallel()
	for more, want := range map[bool]int{false: 0, true: 1} {
		first, second := &takes{}, &takes{}
		f := &feeder{name: "a", size: bulkSizer(0), sources: [overlap]source{first, second}, live: liveLanes{lanes: newLanes(nil, nil, 0), all: []liveLane{{id: 1}, {id: 2}}, more: more}}
		if err := f.takeAll(t.Context(), overlap*batch, time.Now()); err != nil || first.n != 1 || second.n != want {
			t.Errorf("more %t: %d and %d takes, want 1 and %d, %v", more, first.n, second.n, want, err)
		}
	}
}
