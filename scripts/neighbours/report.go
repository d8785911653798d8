package neighbours

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"time"
)

const (
	// margin is the maximum increase by the misuse of a resource.
	margin = 500 * time.Millisecond
	// deliveryMargin is the maximum increase for deliveries to webhook endpoints.
	deliveryMargin = time.Second
	// moonshot is the desired maximum increase.
	moonshot = 200 * time.Millisecond
)

// Row is the result of one resource.
type Row struct {
	Resource string `json:"resource"`
	What     string `json:"what"`
	// Misuse counts the actions of the misusing company.
	Misuse map[string]int `json:"misuse"`
	// Windows is the number of windows that an email may wait.
	Windows int `json:"windows"`
	// Backoff is how long, in milliseconds, an email may additionally wait for a retry.
	Backoff float64 `json:"backoffMs"`
	// Deliveries: the limit of deliveries to webhook endpoints applies.
	Deliveries bool        `json:"deliveries"`
	Seen       Measurement `json:"seen"`
	// Worst is the kind of request with the largest increase, Added that increase of its p99
	// above idle, in milliseconds.
	Worst string  `json:"worst"`
	Added float64 `json:"addedMs"`
	// Waited is the p99 from accept to SES minus the allowed wait because of others, in
	// milliseconds.
	Waited   float64  `json:"aboveWindowMs"`
	Moonshot bool     `json:"moonshot"`
	Missed   []string `json:"missed"` // limits
}

// Report is the result of a run.
type Report struct {
	Durability string      `json:"durability"`
	Window     float64     `json:"windowSeconds"`
	Idle       Measurement `json:"idle"`
	Rows       []Row       `json:"rows"`
}

// OK reports whether the resource met its limits.
func (r *Row) OK() bool { return len(r.Missed) == 0 }

// Missed returns the resources that missed a limit.
func (r *Report) Missed() []string {
	var names []string
	for _, row := range r.Rows {
		if !row.OK() {
			names = append(names, row.Resource)
		}
	}
	return names
}

// evaluate compares the measurement with the limits.
func (r *Row) evaluate(idle Measurement) {
	r.Worst, r.Added = r.Seen.worst(idle)
	most, allowed := milliseconds(margin), float64(r.Windows)*milliseconds(window)+r.Backoff
	r.Waited = r.Seen.Sending.P99 - allowed
	for _, kind := range slices.Sorted(maps.Keys(r.Seen.Requests)) {
		f, before := r.Seen.Requests[kind], idle.Requests[kind].P99
		if f.P99 > before+most {
			r.miss("%s: p99 %.0f ms, limit %.0f (idle %.0f + %.0f)", kind, f.P99, before+most, before, most)
		}
		if len(f.Refused) > 0 {
			r.miss("%s: %s", kind, f.refusals())
		}
	}
	if r.Waited > most {
		r.miss("accept→SES: p99 %.0f ms, limit %.0f (%.0f + %.0f)", r.Seen.Sending.P99, allowed+most, allowed, most)
	}
	if f, limit := r.Seen.Deliveries, idle.Deliveries.P99+milliseconds(deliveryMargin); r.Deliveries && (f.P99 > limit || len(f.Refused) > 0) {
		r.miss("webhook: p99 %.0f ms, limit %.0f (idle %.0f + %.0f) %s", f.P99, limit, idle.Deliveries.P99, milliseconds(deliveryMargin), f.refusals())
	}
	if len(r.Misuse) == 0 {
		r.miss("nothing was misused")
	}
	r.Moonshot = r.OK() && r.Added <= milliseconds(moonshot) && r.Waited <= milliseconds(moonshot)
}

func (r *Row) miss(format string, args ...any) {
	r.Missed = append(r.Missed, fmt.Sprintf(format, args...))
}

func (r *Row) result() string {
	switch {
	case !r.OK():
		return "MISSED"
	case r.Moonshot:
		return "moonshot"
	}
	return "ok"
}

func (r *Row) print(out io.Writer) {
	r.Seen.print(out, r.Resource)
	fmt.Fprintf(out, "%-20s %s; misuse: %v\n", "", r.result(), r.Misuse)
	for _, what := range r.Missed {
		fmt.Fprintf(out, "%-20s missed: %s\n", "", what)
	}
}

// Print writes the table for SECURITY.md.
func (r *Report) Print(out io.Writer) {
	slowest := 0.0
	for _, f := range r.Idle.Requests {
		slowest = max(slowest, f.P99)
	}
	fmt.Fprintf(out, "\nidle: slowest kind of request p99 %.0f ms, accept→SES p99 %.0f ms; window %.1f s\n\n", slowest, r.Idle.Sending.P99, r.Window)
	fmt.Fprintln(out, "| resource | misuse | slowest request, p99 | above idle | accept → SES, p99 | |")
	fmt.Fprintln(out, "|---|---|---|---|---|---|")
	for _, row := range r.Rows {
		fmt.Fprintf(out, "| %s | %s | %s %.0f ms | %+.0f ms | %.0f ms | %s |\n", row.Resource, row.What,
			row.Worst, row.Seen.Requests[row.Worst].P99, row.Added, row.Seen.Sending.P99, row.result())
	}
	if missed := r.Missed(); len(missed) > 0 {
		fmt.Fprintf(out, "\nmissed: %v\n", missed)
	}
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
