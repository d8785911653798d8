// Package emailtest has what tests of several packages expect of emails.
package emailtest

import (
	"slices"
	"time"

	"email-gateway/shared/email"
)

// Backoff is the default of EMAIL_BACKOFF.
func Backoff() email.Backoff {
	return email.Backoff{time.Second, 5 * time.Second, 30 * time.Second, 2 * time.Minute, 10 * time.Minute}
}

// followers is the timeline's state diagram: the allowed next events. "" is the start. A CHECK on
// email_events has the same table, and a test compares the two.
//
// SENT may follow every waiting or final state: a provider's late acceptance is a fact, whatever was decided meanwhile.
// It is the first event if a promoted standby lacks the attempt's claim. After SENT there is only feedback, in any
// order.
var followers = map[email.EventType][]email.EventType{
	"":                          {email.EventReceived, email.EventRescheduled, email.EventCancelled, email.EventExpired, email.EventSuppressed, email.EventSent},
	email.EventReceived:         {email.EventValidated, email.EventValidationFailed, email.EventSuppressed},
	email.EventValidated:        {email.EventSentAttempt},
	email.EventValidationFailed: {email.EventFailed},
	email.EventSentAttempt:      {email.EventSent, email.EventFailed, email.EventRetryScheduled, email.EventOutcomeUnknown, email.EventReleased},
	email.EventOutcomeUnknown:   {email.EventSent, email.EventFailed, email.EventRetryScheduled},
	email.EventRescheduled:      {email.EventReceived, email.EventRescheduled, email.EventCancelled, email.EventExpired, email.EventSuppressed, email.EventSent},
	email.EventRetryScheduled:   {email.EventReceived, email.EventRescheduled, email.EventCancelled, email.EventExpired, email.EventSuppressed, email.EventSent},
	email.EventReleased:         {email.EventReceived, email.EventRescheduled, email.EventCancelled, email.EventExpired, email.EventSuppressed, email.EventSent},
	email.EventReplayed:         {email.EventReceived, email.EventRescheduled, email.EventCancelled, email.EventExpired, email.EventSuppressed, email.EventSent},
	email.EventFailed:           {email.EventReplayed, email.EventSent},
	email.EventExpired:          {email.EventReplayed, email.EventSent},
	email.EventCancelled:        {email.EventReplayed, email.EventSent},
	email.EventSuppressed:       {email.EventSent},
	email.EventSent:             email.FeedbackEvents(),

	email.EventDelivered:           email.FeedbackEvents(),
	email.EventDeliveryDelayed:     email.FeedbackEvents(),
	email.EventBounced:             email.FeedbackEvents(),
	email.EventComplained:          email.FeedbackEvents(),
	email.EventRejected:            email.FeedbackEvents(),
	email.EventRenderingFailed:     email.FeedbackEvents(),
	email.EventOpened:              email.FeedbackEvents(),
	email.EventClicked:             email.FeedbackEvents(),
	email.EventSubscriptionChanged: email.FeedbackEvents(),
	email.EventDuplicateConfirmed:  email.FeedbackEvents(),
}

// MayFollow reports whether next may follow previous in a timeline; previous is "" for the first
// event.
func MayFollow(previous, next email.EventType) bool {
	return slices.Contains(followers[previous], next)
}
