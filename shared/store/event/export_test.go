package event

// Statements for a look at their plans.
const (
	BeforeSQL  = beforeSQL
	WaitingSQL = waitingSQL
)
