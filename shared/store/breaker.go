package store

import "email-gateway/shared/store/breaker"

// Types of package breaker.
type (
	Gate      = breaker.Gate
	GateState = breaker.State
	GatePass  = breaker.Pass
	Shutting  = breaker.Shutting
	Reopened  = breaker.Reopened

	breakers = breaker.Store
)

// The states of the circuit breaker: GateOpen lets emails pass, GateShut only a probe.
const (
	GateOpen = breaker.Open
	GateShut = breaker.Shut
)

// ErrGateLocked: another transaction has locked the circuit breaker's row. Nothing was written.
var ErrGateLocked = breaker.ErrLocked
