package email

import (
	"slices"
	"time"
)

// EventType is a step in an email's timeline.
type EventType string

const (
	EventReceived         EventType = "RECEIVED"
	EventValidated        EventType = "VALIDATED"
	EventValidationFailed EventType = "VALIDATION_FAILED"
	EventSentAttempt      EventType = "SENT_ATTEMPT"
	EventSent             EventType = "SENT"
	EventFailed           EventType = "FAILED"
	EventRetryScheduled   EventType = "RETRY_SCHEDULED"
	EventOutcomeUnknown   EventType = "OUTCOME_UNKNOWN"
	EventReleased         EventType = "RELEASED"
	EventReplayed         EventType = "REPLAYED"
	EventCancelled        EventType = "CANCELLED"
	EventExpired          EventType = "EXPIRED"
	EventSuppressed       EventType = "SUPPRESSED"
	// EventRescheduled: moved to another time while no worker had claimed it.
	EventRescheduled EventType = "RESCHEDULED"
)

// Feedback events, reported by the provider after it has accepted an email.
const (
	EventDelivered           EventType = "DELIVERED"
	EventDeliveryDelayed     EventType = "DELIVERY_DELAYED"
	EventBounced             EventType = "BOUNCED"
	EventComplained          EventType = "COMPLAINED"
	EventRejected            EventType = "REJECTED" // accepted, then found to contain a virus
	EventRenderingFailed     EventType = "RENDERING_FAILED"
	EventOpened              EventType = "OPENED"
	EventClicked             EventType = "CLICKED"
	EventSubscriptionChanged EventType = "SUBSCRIPTION_CHANGED"
	// EventDuplicateConfirmed: the provider accepted the email more than once.
	EventDuplicateConfirmed EventType = "DUPLICATE_CONFIRMED"
)

// FeedbackEvents lists the feedback events.
func FeedbackEvents() []EventType {
	return []EventType{
		EventDelivered, EventDeliveryDelayed, EventBounced, EventComplained, EventRejected, EventRenderingFailed,
		EventOpened, EventClicked, EventSubscriptionChanged, EventDuplicateConfirmed,
	}
}

// IsFeedback reports whether the type is a feedback event.
func (t EventType) IsFeedback() bool { return slices.Contains(FeedbackEvents(), t) }

// Event is one step of a timeline.
type Event struct {
	Type     EventType      `json:"type"`
	At       time.Time      `json:"at"`
	Metadata map[string]any `json:"metadata"`
}

// followers is the timeline's state diagram: the allowed next events. "" is the start. A CHECK on
// email_events has the same table, and a test compares the two.
//
// SENT may follow every waiting or final state: a provider's late acceptance is a fact, whatever
// was decided meanwhile. After SENT there is only feedback, in any order.
var followers = map[EventType][]EventType{
	"":                    {EventReceived, EventRescheduled, EventCancelled, EventExpired, EventSuppressed},
	EventReceived:         {EventValidated, EventValidationFailed, EventSuppressed},
	EventValidated:        {EventSentAttempt},
	EventValidationFailed: {EventFailed},
	EventSentAttempt:      {EventSent, EventFailed, EventRetryScheduled, EventOutcomeUnknown, EventReleased},
	EventOutcomeUnknown:   {EventSent, EventFailed, EventRetryScheduled},
	EventRescheduled:      {EventReceived, EventRescheduled, EventCancelled, EventExpired, EventSuppressed, EventSent},
	EventRetryScheduled:   {EventReceived, EventRescheduled, EventCancelled, EventExpired, EventSuppressed, EventSent},
	EventReleased:         {EventReceived, EventRescheduled, EventCancelled, EventExpired, EventSuppressed, EventSent},
	EventReplayed:         {EventReceived, EventRescheduled, EventCancelled, EventExpired, EventSuppressed, EventSent},
	EventFailed:           {EventReplayed, EventSent},
	EventExpired:          {EventReplayed, EventSent},
	EventCancelled:        {EventReplayed, EventSent},
	EventSuppressed:       {EventSent},
	EventSent:             FeedbackEvents(),

	EventDelivered:           FeedbackEvents(),
	EventDeliveryDelayed:     FeedbackEvents(),
	EventBounced:             FeedbackEvents(),
	EventComplained:          FeedbackEvents(),
	EventRejected:            FeedbackEvents(),
	EventRenderingFailed:     FeedbackEvents(),
	EventOpened:              FeedbackEvents(),
	EventClicked:             FeedbackEvents(),
	EventSubscriptionChanged: FeedbackEvents(),
	EventDuplicateConfirmed:  FeedbackEvents(),
}

// MayFollow reports whether next may follow previous in a timeline; previous is "" for the first
// event.
func MayFollow(previous, next EventType) bool {
	return slices.Contains(followers[previous], next)
}

// EventTypes lists every event type, sorted.
func EventTypes() []EventType {
	types := make([]EventType, 0, len(followers)-1)
	for t := range followers {
		if t != "" {
			types = append(types, t)
		}
	}
	slices.Sort(types)
	return types
}
