package store

import "email-gateway/shared/store/audit"

// Operator is the person who makes a change with gatewayctl, with the reason.
type Operator = audit.Operator

// Actor is the requester of a change, as rows and timelines record it.
type Actor = audit.Actor

// AuditEntry is a row of operator_audit; AuditFilter selects rows.
type (
	AuditEntry  = audit.Entry
	AuditFilter = audit.Filter
)

// The values of Actor.By: the program through which the request came.
const (
	ByAPI      = audit.ByAPI
	ByOperator = audit.ByOperator
)

type auditLog = audit.Log
