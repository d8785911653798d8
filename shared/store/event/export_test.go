package event

// BeforeSQL is the statement for a look at its plan.
const BeforeSQL = beforeSQL
