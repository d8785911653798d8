package store

import "email-gateway/shared/store/breaker"

// Types of package breaker.
type (
	Breaker     = breaker.Breaker
	BreakerPass = breaker.Pass
	Opening     = breaker.Opening
	LastOpening = breaker.LastOpening

	breakers = breaker.Store
)

// ErrBreakerLocked: another transaction has locked the circuit breaker's row. Nothing was written.
var ErrBreakerLocked = breaker.ErrLocked
