package email

// Delivery is the policy for an email whose outcome is unknown.
type Delivery string

const (
	// AtLeastOnce sends again and flags a possible duplicate.
	AtLeastOnce Delivery = "at_least_once"
	// AtMostOnce never sends again.
	AtMostOnce Delivery = "at_most_once"
)
