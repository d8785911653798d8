package neighbours

import (
	"fmt"
	"io"
	"time"
)

const (
	// margin is what the misuse of a resource may add.
	margin = 500 * time.Millisecond
	// moonshot is what it should add at most.
	moonshot = 200 * time.Millisecond
)

// Row is the result of one resource.
type Row struct {
	Resource string `json:"resource"`
	What     string `json:"what"`
	// Misuse counts what the misusing company did.
	Misuse map[string]int `json:"misuse"`
	// Windows is how many windows an email may have waited.
	Windows int         `json:"windows"`
	Seen    Measurement `json:"seen"`
	// Worst is the kind of request that became slowest, Added its 99th percentile less the
	// idle one, in milliseconds.
	Worst string  `json:"worst"`
	Added float64 `json:"addedMs"`
	// Waited is the 99th percentile from accept to SES less the window, in milliseconds.
	Waited   float64  `json:"aboveWindowMs"`
	Moonshot bool     `json:"moonshot"`
	Missed   []string `json:"missed"` // limits
}

// Report is what a run found.
type Report struct {
	Durability string      `json:"durability"`
	Window     float64     `json:"windowSeconds"`
	Idle       Measurement `json:"idle"`
	Rows       []Row       `json:"rows"`
}

// OK says that the resource met its limits.
func (r *Row) OK() bool { return len(r.Missed) == 0 }

// Missed names the resources that missed a limit.
func (r *Report) Missed() []string {
	var names []string
	for _, row := range r.Rows {
		if !row.OK() {
			names = append(names, row.Resource)
		}
	}
	return names
}

// judge compares what was seen with the limits.
func (r *Row) judge(idle Measurement) {
	r.Worst, r.Added = r.Seen.worst(idle)
	r.Waited = r.Seen.Sending.P99 - float64(r.Windows)*milliseconds(window())
	most := milliseconds(margin)
	for kind, f := range r.Seen.Requests {
		limit := idle.Requests[kind].P99 + most
		if f.P99 > limit {
			r.miss("%s: p99 %.0f ms, at most %.0f (idle %.0f + %.0f)", kind, f.P99, limit, idle.Requests[kind].P99, most)
		}
		if len(f.Refused) > 0 {
			r.miss("%s: %s", kind, f.refusals())
		}
	}
	if r.Waited > most {
		r.miss("accept→SES: p99 %.0f ms, at most %.0f (window %.0f × %d + %.0f)",
			r.Seen.Sending.P99, r.Seen.Sending.P99-r.Waited+most, milliseconds(window()), r.Windows, most)
	}
	if len(r.Misuse) == 0 {
		r.miss("nothing was misused")
	}
	r.Moonshot = r.OK() && r.Added <= milliseconds(moonshot) && r.Waited <= milliseconds(moonshot)
}

func (r *Row) miss(format string, args ...any) {
	r.Missed = append(r.Missed, fmt.Sprintf(format, args...))
}

func (r *Row) verdict() string {
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
	fmt.Fprintf(out, "%-20s %s; misuse: %v\n", "", r.verdict(), r.Misuse)
	for _, what := range r.Missed {
		fmt.Fprintf(out, "%-20s missed: %s\n", "", what)
	}
}

// Print writes the table that SECURITY.md holds.
func (r *Report) Print(out io.Writer) {
	worst := func(m Measurement) (name string, most float64) {
		for kind, f := range m.Requests {
			if f.P99 > most {
				name, most = kind, f.P99
			}
		}
		return name, most
	}
	_, idle := worst(r.Idle)
	fmt.Fprintf(out, "\nidle: slowest kind of request p99 %.0f ms, accept→SES p99 %.0f ms; window %.1f s\n\n", idle, r.Idle.Sending.P99, r.Window)
	fmt.Fprintln(out, "| resource | misuse | slowest request, p99 | above idle | accept → SES, p99 | |")
	fmt.Fprintln(out, "|---|---|---|---|---|---|")
	for _, row := range r.Rows {
		fmt.Fprintf(out, "| %s | %s | %s %.0f ms | %+.0f ms | %.0f ms | %s |\n", row.Resource, row.What,
			row.Worst, row.Seen.Requests[row.Worst].P99, row.Added, row.Seen.Sending.P99, row.verdict())
	}
	if missed := r.Missed(); len(missed) > 0 {
		fmt.Fprintf(out, "\nmissed: %v\n", missed)
	}
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
