package neighbours

import (
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strings"
	"time"
)

// Figures are the times of one kind of request, in milliseconds.
type Figures struct {
	Count int     `json:"count"`
	P50   float64 `json:"p50Ms"`
	P90   float64 `json:"p90Ms"`
	P99   float64 `json:"p99Ms"`
	Max   float64 `json:"maxMs"`
	// Refused counts the requests without a successful response within the client's timeout, by
	// status; 0 = no response.
	Refused map[int]int `json:"refused,omitempty"`
}

// Measurement are the results of the quiet company.
type Measurement struct {
	// Requests are the response times by kind of request.
	Requests map[string]Figures `json:"requests"`
	// Sending is the time from the acceptance of an email to the request for it at SES.
	Sending Figures `json:"sending"`
	// Deliveries is the time from an email's event SENT to its arrival at the company's webhook endpoint.
	Deliveries Figures `json:"deliveries"`
	// Rate is the number of emails per second of all companies at SES.
	Rate float64 `json:"emailsPerSecond"`
}

// figures summarizes times. A refused request counts with the client's timeout.
func figures(times []time.Duration, refused map[int]int) Figures {
	f := Figures{Refused: refused}
	times = slices.Clone(times)
	for _, n := range refused {
		for range n {
			times = append(times, requestTimeout)
		}
	}
	slices.Sort(times)
	if f.Count = len(times); f.Count == 0 {
		return f
	}
	f.P50, f.P90, f.P99, f.Max = percentile(times, 50), percentile(times, 90), percentile(times, 99), percentile(times, 100)
	return f
}

// percentile of sorted times, by nearest rank, in milliseconds.
func percentile(sorted []time.Duration, p float64) float64 {
	rank := int(math.Ceil(p / 100 * float64(len(sorted))))
	return float64(sorted[max(rank, 1)-1].Microseconds()) / 1000
}

// worst returns the kind of request with the largest increase of p99 above idle.
func (m Measurement) worst(idle Measurement) (kind string, above float64) {
	above = math.Inf(-1)
	for _, name := range slices.Sorted(maps.Keys(m.Requests)) {
		if by := m.Requests[name].P99 - idle.Requests[name].P99; by > above {
			kind, above = name, by
		}
	}
	return kind, above
}

func (m Measurement) print(out io.Writer, title string) {
	fmt.Fprintf(out, "%-20s %-12s %6s %9s %9s %9s %9s\n", title, "", "count", "p50 ms", "p90 ms", "p99 ms", "max ms")
	line := func(name string, f Figures) {
		fmt.Fprintf(out, "%-20s %-12s %6d %9.0f %9.0f %9.0f %9.0f %s\n", "", name, f.Count, f.P50, f.P90, f.P99, f.Max, f.refusals())
	}
	for _, name := range slices.Sorted(maps.Keys(m.Requests)) {
		line(name, m.Requests[name])
	}
	line("accept→SES", m.Sending)
	line("webhook", m.Deliveries)
	fmt.Fprintf(out, "%-20s %.0f emails/s to SES\n", "", m.Rate)
}

func (f Figures) refusals() string {
	var parts []string
	for _, status := range slices.Sorted(maps.Keys(f.Refused)) {
		parts = append(parts, fmt.Sprintf("%d × %d", f.Refused[status], status))
	}
	if len(parts) == 0 {
		return ""
	}
	return "refused: " + strings.Join(parts, ", ")
}
