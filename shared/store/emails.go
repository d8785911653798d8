package store

import (
	"email-gateway/shared/store/emails"
)

// Types of package emails.
type (
	EmailDiagnosis = emails.Diagnosis
	Email          = emails.Email
	TimelineEvent  = emails.TimelineEvent
	EmailFilter    = emails.Filter
	EmailPage      = emails.Page
	ShownEmail     = emails.Shown
	ChangedEmail   = emails.Changed

	emailReads = emails.Store
)

// MaxTimeline limits the events that Timeline reads.
const MaxTimeline = emails.MaxTimeline
