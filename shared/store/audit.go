package store

import "email-gateway/shared/store/audit"

// Operator is the person who changes something by hand, with the reason.
type Operator = audit.Operator

// Actor is who asked for something that a row and a timeline tell of later.
type Actor = audit.Actor

// AuditEntry is a row of operator_audit, and AuditFilter chooses some.
type (
	AuditEntry  = audit.Entry
	AuditFilter = audit.Filter
)

// The programs that operators use.
const (
	ByAPI      = audit.ByAPI
	ByOperator = audit.ByOperator
)

type auditLog = audit.Log
