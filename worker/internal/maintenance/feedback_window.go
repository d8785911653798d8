package maintenance

import (
	"context"
	"encoding/json"
	"time"

	"email-gateway/shared/store/process"
)

// Fields of a worker's status row, in milliseconds.
const (
	WindowFact = "feedbackWindowMs" // its feedback window
	// DrainedFact is the time since it last drained the queue of SES events. A worker that reads no queue does not report it.
	DrainedFact = "sesEventsDrainedMs"
)

// maxUndrained is how much longer an email waits for feedback while the queue of SES events cannot be drained, at most.
const maxUndrained = time.Hour

// Processes reads the statuses that dispatchers and workers reported.
type Processes interface {
	ProcessStatuses(ctx context.Context) ([]process.Status, error)
}

// feedbackWindow returns the longest window that any worker has reported in the last hour, for which statuses are kept. Dead
// workers are included, because their emails are resolved here. Without a report it returns own: a dispatcher sends nothing,
// and may not know the configuration set with which emails are sent.
func feedbackWindow(ctx context.Context, processes Processes, own time.Duration) (time.Duration, error) {
	reports, err := workerReports(ctx, processes, WindowFact)
	if err != nil || len(reports) == 0 {
		return own, err
	}
	longest := time.Duration(0)
	for _, r := range reports {
		longest = max(longest, r.value)
	}
	return longest, nil
}

// drain is what workers have reported about the queue of SES events. It is kept, because a worker that stops withdraws
// its report.
type drain struct{ at, reported time.Time }

// late returns the time since any worker last drained the queue, at most maxUndrained: SES's reports of that time may still be
// in the queue. It is 0 if no worker has read a queue in the last hour.
func (d *drain) late(ctx context.Context, processes Processes) (time.Duration, error) {
	reports, err := workerReports(ctx, processes, DrainedFact)
	if err != nil {
		return 0, err
	}
	now := time.Now()
	if len(reports) > 0 {
		shortest := maxUndrained
		for _, r := range reports {
			shortest = min(shortest, r.age+min(r.value, maxUndrained))
		}
		d.at, d.reported = now.Add(-shortest), now
	}
	if now.Sub(d.reported) > maxUndrained {
		return 0, nil
	}
	return min(now.Sub(d.at), maxUndrained), nil
}

// workerReport is a duration in a worker's status row.
type workerReport struct{ value, age time.Duration }

// workerReports returns the fact of each worker that has reported it in the last hour.
func workerReports(ctx context.Context, processes Processes, fact string) ([]workerReport, error) {
	all, err := processes.ProcessStatuses(ctx)
	if err != nil {
		return nil, err
	}
	var reports []workerReport
	for _, p := range all {
		var facts map[string]json.RawMessage
		var millis int64
		if p.Service != "worker" || json.Unmarshal(p.Details, &facts) != nil || json.Unmarshal(facts[fact], &millis) != nil {
			continue // of another service, or of a worker of an older release
		}
		reports = append(reports, workerReport{value: time.Duration(millis) * time.Millisecond, age: p.Age})
	}
	return reports, nil
}
