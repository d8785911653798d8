package maintenance

import (
	"context"
	"encoding/json"
	"time"

	"email-gateway/shared/store"
)

// WindowFact is the entry of a worker's status row that says, in milliseconds, how long it
// has the provider's feedback waited for.
const WindowFact = "feedbackWindowMs"

// Processes tells what dispatchers and workers last said of themselves.
type Processes interface {
	ProcessStatuses(ctx context.Context) ([]store.ProcessStatus, error)
}

// feedbackWindow is the longest that any worker told of within the hour for which its word
// is kept, dead ones too: it is their emails that are decided about. own is for the time in
// which none has. A dispatcher sends nothing, and may not know of the configuration set
// that emails are sent through.
func feedbackWindow(ctx context.Context, processes Processes, own time.Duration) (time.Duration, error) {
	all, err := processes.ProcessStatuses(ctx)
	if err != nil {
		return 0, err
	}
	longest, told := time.Duration(0), false
	for _, p := range all {
		var facts map[string]json.RawMessage
		var millis int64
		if p.Service != "worker" || json.Unmarshal(p.Details, &facts) != nil || json.Unmarshal(facts[WindowFact], &millis) != nil {
			continue // of an older release, at most
		}
		longest, told = max(longest, time.Duration(millis)*time.Millisecond), true
	}
	if !told {
		return own, nil
	}
	return longest, nil
}
