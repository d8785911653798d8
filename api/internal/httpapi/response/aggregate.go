package response

// Aggregate is the aggregate that an email belongs to.
type Aggregate struct {
	Type      string `json:"type"`
	ID        string `json:"id"`
	EventType string `json:"eventType"`
}
