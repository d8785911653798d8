package store

import (
	"email-gateway/shared/store/feedback"
)

// Types of package feedback.
type (
	Feedback       = feedback.Feedback
	FeedbackResult = feedback.Result

	feedbacks = feedback.Store
)
