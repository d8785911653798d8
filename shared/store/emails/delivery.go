package emails

import (
	"slices"

	"email-gateway/shared/email"
)

// deliveryState computes the email.DeliveryState of the log l from the columns that the trigger ses_events_delivery
// writes. If the feedback of an email was recorded before these columns existed, its log has only the last event. NULL:
// the provider has not accepted the email.
const deliveryState = `CASE WHEN l.delivery_problem <> 'delayed' THEN l.delivery_problem
WHEN l.delivered_at IS NOT NULL THEN 'delivered'
WHEN l.delivery_problem IS NOT NULL THEN 'delayed'
WHEN l.last_event IN ('DELIVERED', 'OPENED', 'CLICKED', 'SUBSCRIPTION_CHANGED') THEN 'delivered'
WHEN l.last_event IN ('REJECTED', 'RENDERING_FAILED') THEN 'rejected'
WHEN l.last_event = 'DELIVERY_DELAYED' THEN 'delayed'
WHEN l.last_event IN ('BOUNCED', 'COMPLAINED') THEN lower(l.last_event)
WHEN l.status = 'SENT' THEN 'pending' END`

// DeliveryColumnsSQL selects the delivery state with its time and reason.
const DeliveryColumnsSQL = deliveryState + ` AS delivery,
CASE WHEN l.delivery_problem <> 'delayed' THEN l.delivery_problem_at ELSE coalesce(l.delivered_at, l.delivery_problem_at) END AS delivery_at,
CASE WHEN l.delivery_problem <> 'delayed' OR l.delivered_at IS NULL THEN l.delivery_problem_reason END AS delivery_reason`

// problemIDsSQL reads along email_logs_problem from the cursor down and locks nothing.
const problemIDsSQL = `
SELECT outbox_id FROM email_logs
WHERE company_id = $1 AND outbox_id < $2 AND outbox_id >= $3 AND delivery_problem = $4 ORDER BY outbox_id DESC LIMIT $5`

// isProblem reports whether the index email_logs_problem contains emails in this state.
func isProblem(state email.DeliveryState) bool {
	return slices.Contains([]email.DeliveryState{email.DeliveryDelayed, email.DeliveryRejected, email.DeliveryBounced, email.DeliveryComplained}, state)
}
