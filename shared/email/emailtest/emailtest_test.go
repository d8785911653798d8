package emailtest_test

import (
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"email-gateway/shared/email"
	"email-gateway/shared/email/emailtest"
)

func TestMayFollow_Paths(t *testing.T) {
	t.Parallel()
	const attempt = "RECEIVED VALIDATED SENT_ATTEMPT "
	tests := []struct {
		name, path string
		legal      bool
	}{
		{"sent at once", attempt + "SENT", true},
		{"sent on the third try", attempt + "RETRY_SCHEDULED " + attempt + "RETRY_SCHEDULED " + attempt + "SENT", true},
		{"given back before the call", attempt + "RELEASED " + attempt + "SENT", true},
		{"invalid", "RECEIVED VALIDATION_FAILED FAILED", true},
		{"refused, replayed, sent", attempt + "FAILED REPLAYED " + attempt + "SENT", true},
		{"outcome unknown, tried again", attempt + "OUTCOME_UNKNOWN RETRY_SCHEDULED " + attempt + "SENT", true},
		{"outcome unknown, accepted after all", attempt + "OUTCOME_UNKNOWN SENT", true},
		{"outcome unknown, given up", attempt + "OUTCOME_UNKNOWN FAILED", true},
		{"late success after the deadline", attempt + "RETRY_SCHEDULED EXPIRED SENT", true},
		{"cancelled before a worker received it", "CANCELLED", true},
		{"cancelled, replayed, cancelled again", "CANCELLED REPLAYED CANCELLED", true},
		{"suppressed by the worker", "RECEIVED SUPPRESSED", true},
		{"delivered, then complained of", attempt + "SENT DELIVERED COMPLAINED", true},
		{"events out of order", attempt + "SENT OPENED DELIVERED DELIVERY_DELAYED CLICKED DELIVERED", true},
		{"bounced after a late success", attempt + "OUTCOME_UNKNOWN FAILED SENT BOUNCED", true},

		{"scheduled, moved twice, sent", "RESCHEDULED RESCHEDULED " + attempt + "SENT", true},
		{"moved between two tries", attempt + "RETRY_SCHEDULED RESCHEDULED " + attempt + "SENT", true},
		{"moved, then cancelled, replayed, moved", "RESCHEDULED CANCELLED REPLAYED RESCHEDULED", true},

		{"the claim was lost, the acceptance not", "SENT DELIVERED", true},

		{"moved during the call", attempt + "RESCHEDULED", false},
		{"moved while the outcome is unknown", attempt + "OUTCOME_UNKNOWN RESCHEDULED", false},
		{"moved after its end", attempt + "SENT RESCHEDULED", false},
		{"begins with an attempt", "SENT_ATTEMPT", false},
		{"sent without an attempt", "RECEIVED SENT", false},
		{"sent twice", attempt + "SENT SENT", false},
		{"delivered and not sent", attempt + "DELIVERED", false},
		{"sent behind its delivery", attempt + "SENT DELIVERED SENT", false},
		{"replayed after a bounce", attempt + "SENT BOUNCED REPLAYED", false},
		{"attempt without validation", "RECEIVED SENT_ATTEMPT", false},
		{"replayed after success", attempt + "SENT REPLAYED", false},
		{"suppressed and replayed", "SUPPRESSED REPLAYED", false},
		{"cancelled during the call", attempt + "CANCELLED", false},
		{"a type that is none", "RECEIVED UNHEARD_OF", false},
		{"behind a type that is none", "UNHEARD_OF", false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			legal := true
			var previous email.EventType
			for step := range strings.FieldsSeq(tt.path) {
				legal = legal && emailtest.MayFollow(previous, email.EventType(step))
				previous = email.EventType(step)
			}
			if legal != tt.legal {
				t.Errorf("%s: legal = %v, want %v", tt.path, legal, tt.legal)
			}
		})
	}
}

// In random timelines only feedback follows SENT and occurs nowhere else, and no attempt occurs
// without a validation.
func TestMayFollow_RandomWalks(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var walk []email.EventType
		var last email.EventType
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			next := slices.DeleteFunc(email.EventTypes(), func(e email.EventType) bool { return !emailtest.MayFollow(last, e) })
			if len(next) == 0 {
				break
			}
			last = rapid.SampledFrom(next).Draw(t, "next")
			walk = append(walk, last)
		}
		for i, e := range walk {
			if sent := slices.Index(walk, email.EventSent); e.IsFeedback() != (sent >= 0 && i > sent) {
				t.Fatalf("timeline %v: IsFeedback of %s contradicts its position relative to SENT", walk, e)
			}
			if e == email.EventSentAttempt && (i < 2 || walk[i-1] != email.EventValidated || walk[i-2] != email.EventReceived) {
				t.Fatalf("timeline %v has an attempt without a validation", walk)
			}
		}
	})
}

// From every state a final event is at most four steps away.
func TestMayFollow_NoDeadEnds(t *testing.T) {
	t.Parallel()
	ends := []email.EventType{email.EventSent, email.EventFailed, email.EventExpired, email.EventCancelled, email.EventSuppressed}
	var reaches func(from email.EventType, steps int) bool
	reaches = func(from email.EventType, steps int) bool {
		return slices.Contains(ends, from) || steps > 0 && slices.ContainsFunc(email.EventTypes(), func(next email.EventType) bool {
			return emailtest.MayFollow(from, next) && reaches(next, steps-1)
		})
	}
	for _, from := range email.EventTypes() {
		if !from.IsFeedback() && !reaches(from, 4) {
			t.Errorf("no final event can be reached from %s within four steps", from)
		}
	}
}
