package store

import "email-gateway/shared/store/tenant"

// Types of package tenant.
type (
	Company        = tenant.Company
	NewCompany     = tenant.NewCompany
	APIKey         = tenant.APIKey
	Successor      = tenant.Successor
	Caller         = tenant.Caller
	Program        = tenant.Program
	Retention      = tenant.Retention
	RetentionError = tenant.RetentionError

	tenants = tenant.Store
)

// MaxRetentionDays is the maximum of the ages of a Retention.
const MaxRetentionDays = tenant.MaxRetentionDays
