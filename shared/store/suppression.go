package store

import (
	"email-gateway/shared/store/suppression"
)

// Types of package suppression.
type (
	SuppressionReason = suppression.Reason
	Suppression       = suppression.Suppression
	SuppressionFilter = suppression.Filter

	suppressions = suppression.Store
)

// Constants of package suppression.
const (
	Unsubscribed = suppression.Unsubscribed
	Bounced      = suppression.Bounced
	Complained   = suppression.Complained
	Manual       = suppression.Manual
)

// SuppressionReasons lists all reasons.
func SuppressionReasons() []SuppressionReason { return suppression.Reasons() }
