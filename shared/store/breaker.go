package store

import "email-gateway/shared/store/breaker"

// Types of package breaker.
type (
	Breaker      = breaker.Breaker
	BreakerState = breaker.State
	BreakerPass  = breaker.Pass
	Opening      = breaker.Opening
	LastOpening  = breaker.LastOpening

	breakers = breaker.Store
)

// States of the circuit breaker: BreakerClosed lets all emails pass, BreakerOpen only a probe.
const (
	BreakerClosed = breaker.Closed
	BreakerOpen   = breaker.Open
)

// ErrBreakerLocked: another transaction has locked the circuit breaker's row. Nothing was written.
var ErrBreakerLocked = breaker.ErrLocked
