package webhook

// The statements for looks at their plans.
const (
	DueEndpointsSQL       = dueEndpointsSQL
	BehindSQL             = behindSQL
	CatchUpSQL            = catchUpSQL
	LeaseSQL              = leaseSQL
	RenewSQL              = renewSQL
	DueDeliveriesSQL      = dueDeliveriesSQL
	ProbeSQL              = probeSQL
	NewDueSQL             = newDueSQL
	OpenEmailsSQL         = openEmailsSQL
	RunningReplaySQL      = runningReplaySQL
	ReplayFailedSQL       = replayFailedSQL
	DueSQL                = dueSQL
	AdvanceSQL            = advanceSQL
	DeliveriesSQL         = deliveriesSQL
	RetrySQL              = retrySQL
	CleanDeliveriesSQL    = cleanDeliveriesSQL
	DeliveriesByStatusSQL = deliveriesByStatusSQL
)
