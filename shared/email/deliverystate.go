package email

// DeliveryState is what the provider has reported about an email after it accepted it. If several
// reports apply, for example to several recipients, it is the last one in the order of
// DeliveryStates, whatever the order of the reports.
type DeliveryState string

const (
	DeliveryPending    DeliveryState = "pending"   // SENT, and nothing is reported yet
	DeliveryDelayed    DeliveryState = "delayed"   // the provider tries again
	DeliveryDone       DeliveryState = "delivered" // a recipient's server accepted it
	DeliveryRejected   DeliveryState = "rejected"  // accepted, and not sent: it contains a virus or cannot be rendered
	DeliveryBounced    DeliveryState = "bounced"
	DeliveryComplained DeliveryState = "complained" // a recipient reported it as spam
)

// DeliveryStates lists the states; a later one overrides an earlier one.
func DeliveryStates() []DeliveryState {
	return []DeliveryState{DeliveryPending, DeliveryDelayed, DeliveryDone, DeliveryRejected, DeliveryBounced, DeliveryComplained}
}
