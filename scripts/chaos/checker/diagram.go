package checker

import "slices"

// The state diagram of schema/README.md, repeated here: the checker does not use the gateway's own
// code.

// isFinal reports whether the status of an email is final.
func isFinal(status string) bool {
	return slices.Contains([]string{sent, "FAILED", "EXPIRED", "CANCELLED", "SUPPRESSED"}, status)
}

const (
	sent       = "SENT"
	failed     = "FAILED"
	cancelled  = "CANCELLED"
	expired    = "EXPIRED"
	suppressed = "SUPPRESSED"
	unknown    = "OUTCOME_UNKNOWN"
	scheduled  = "RETRY_SCHEDULED"
	attempt    = "SENT_ATTEMPT"
	replayed   = "REPLAYED"
	moved      = "RESCHEDULED"
	doubled    = "DUPLICATE_CONFIRMED"
)

// feedback lists the events that SES publishes about an accepted email.
var feedback = []string{
	"DELIVERED", "DELIVERY_DELAYED", "BOUNCED", "COMPLAINED", "REJECTED", "RENDERING_FAILED", "OPENED", "CLICKED", "SUBSCRIPTION_CHANGED", doubled,
}

// arrows lists the events that may follow each event; "" is the beginning.
var arrows = map[string][]string{
	"":                  {"RECEIVED", moved, cancelled, "EXPIRED", suppressed, sent},
	"RECEIVED":          {"VALIDATED", "VALIDATION_FAILED", suppressed},
	"VALIDATED":         {attempt},
	"VALIDATION_FAILED": {failed},
	attempt:             {sent, failed, scheduled, unknown, "RELEASED"},
	unknown:             {sent, failed, scheduled},
	scheduled:           {"RECEIVED", moved, cancelled, "EXPIRED", suppressed, sent},
	"RELEASED":          {"RECEIVED", moved, cancelled, "EXPIRED", suppressed, sent},
	replayed:            {"RECEIVED", moved, cancelled, "EXPIRED", suppressed, sent},
	moved:               {"RECEIVED", moved, cancelled, "EXPIRED", suppressed, sent},
	failed:              {replayed, sent},
	"EXPIRED":           {replayed, sent},
	cancelled:           {replayed, sent},
	suppressed:          {sent},
	sent:                feedback,
}

// follows reports whether the diagram has an arrow from one event to the next.
func follows(previous, next string) bool {
	if slices.Contains(feedback, previous) {
		return slices.Contains(feedback, next)
	}
	return slices.Contains(arrows[previous], next)
}

// queueNames are the queues of emails on Redis.
var queueNames = []string{"email:send:high", "email:send", "email:send:low"}
