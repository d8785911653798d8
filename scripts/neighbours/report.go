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

// percent is the percentile to which limits apply.
type percent int

// percent is 99, or 90 in the short run: of fewer than a hundred requests the 99th percentile is
// the slowest one, which on a machine with other load depends mostly on that load.
func (c Config) percent() percent {
	if c.Short {
		return 90
	}
	return 99
}

func (p percent) of(f Figures) float64 {
	if p == 90 {
		return f.P90
	}
	return f.P99
}

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
	// Worst is the kind of request with the largest increase, Added that increase of its percentile
	// above idle, in milliseconds.
	Worst string  `json:"worst"`
	Added float64 `json:"addedMs"`
	// Waited is the percentile from accept to SES minus the allowed wait because of others, in
	// milliseconds.
	Waited   float64  `json:"aboveWindowMs"`
	Moonshot bool     `json:"moonshot"`
	Missed   []string `json:"missed"` // limits
}

// Report is the result of a run.
type Report struct {
	Durability string      `json:"durability"`
	Window     float64     `json:"windowSeconds"`
	Percent    percent     `json:"percentile"` // to which limits apply
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
func (r *Row) evaluate(idle Measurement, p percent) {
	r.Worst, r.Added = r.Seen.worst(idle, p)
	most, allowed := milliseconds(margin), float64(r.Windows)*milliseconds(window())+r.Backoff
	if p < 99 { // other load on the machine delays idle emails too
		allowed += p.of(idle.Sending)
	}
	r.Waited = p.of(r.Seen.Sending) - allowed
	for _, kind := range slices.Sorted(maps.Keys(r.Seen.Requests)) {
		f, before := r.Seen.Requests[kind], p.of(idle.Requests[kind])
		if p.of(f) > before+most {
			r.miss("%s: p%d %.0f ms, limit %.0f (idle %.0f + %.0f)", kind, p, p.of(f), before+most, before, most)
		}
		if len(f.Refused) > 0 {
			r.miss("%s: %s", kind, f.refusals())
		}
	}
	if r.Waited > most {
		r.miss("accept→SES: p%d %.0f ms, limit %.0f (%.0f + %.0f)", p, p.of(r.Seen.Sending), allowed+most, allowed, most)
	}
	if f, limit := r.Seen.Deliveries, p.of(idle.Deliveries)+milliseconds(deliveryMargin); r.Deliveries && (p.of(f) > limit || len(f.Refused) > 0) {
		r.miss("webhook: p%d %.0f ms, limit %.0f (idle %.0f + %.0f) %s", p, p.of(f), limit, p.of(idle.Deliveries), milliseconds(deliveryMargin), f.refusals())
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
	p, slowest := r.Percent, 0.0
	for _, f := range r.Idle.Requests {
		slowest = max(slowest, p.of(f))
	}
	fmt.Fprintf(out, "\nidle: slowest kind of request p%d %.0f ms, accept→SES p%d %.0f ms; window %.1f s\n\n", p, slowest, p, p.of(r.Idle.Sending), r.Window)
	fmt.Fprintf(out, "| resource | misuse | slowest request, p%d | above idle | accept → SES, p%d | |\n", p, p)
	fmt.Fprintln(out, "|---|---|---|---|---|---|")
	for _, row := range r.Rows {
		fmt.Fprintf(out, "| %s | %s | %s %.0f ms | %+.0f ms | %.0f ms | %s |\n", row.Resource, row.What,
			row.Worst, p.of(row.Seen.Requests[row.Worst]), row.Added, p.of(row.Seen.Sending), row.result())
	}
	if missed := r.Missed(); len(missed) > 0 {
		fmt.Fprintf(out, "\nmissed: %v\n", missed)
	}
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
