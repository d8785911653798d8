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

// EventTypes lists every event type, sorted.
func EventTypes() []EventType {
	types := append(FeedbackEvents(),
		EventReceived, EventValidated, EventValidationFailed, EventSentAttempt, EventSent, EventFailed,
		EventRetryScheduled, EventOutcomeUnknown, EventReleased, EventReplayed, EventCancelled,
		EventExpired, EventSuppressed, EventRescheduled)
	slices.Sort(types)
	return types
}
