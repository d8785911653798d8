package maintenance

import (
	"context"
	"encoding/json"
	"time"

	"email-gateway/shared/store/process"
)

// WindowFact is the field of a worker's status row with its feedback window in milliseconds.
const WindowFact = "feedbackWindowMs"

// Processes reads the statuses that dispatchers and workers reported.
type Processes interface {
	ProcessStatuses(ctx context.Context) ([]process.Status, error)
}

// feedbackWindow returns the longest window that any worker has reported in the last hour, for which statuses are kept. Dead
// workers are included, because their emails are resolved here. Without a report it returns own: a dispatcher sends nothing,
// and may not know the configuration set with which emails are sent.
func feedbackWindow(ctx context.Context, processes Processes, own time.Duration) (time.Duration, error) {
	all, err := processes.ProcessStatuses(ctx)
	if err != nil {
		return 0, err
	}
	longest, reported := time.Duration(0), false
	for _, p := range all {
		var facts map[string]json.RawMessage
		var millis int64
		if p.Service != "worker" || json.Unmarshal(p.Details, &facts) != nil || json.Unmarshal(facts[WindowFact], &millis) != nil {
			continue // of another service, or of a worker of an older release
		}
		longest, reported = max(longest, time.Duration(millis)*time.Millisecond), true
	}
	if !reported {
		return own, nil
	}
	return longest, nil
}
