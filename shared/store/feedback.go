package store

import (
	"email-gateway/shared/store/feedback"
)

// Types of package feedback.
type (
	Feedback       = feedback.Feedback
	FeedbackResult = feedback.Result
	EventArrivals  = feedback.Arrivals

	feedbacks = feedback.Store
)
