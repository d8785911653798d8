package store

import (
	"email-gateway/shared/store/quota"
)

// Types of package quota.
type (
	Quota      = quota.Quota
	QuotaUse   = quota.Use
	QuotaError = quota.Error

	companyQuotas = quota.Store
)

// Constants of package quota.
const (
	QuotaScheduledEmails   = quota.ScheduledEmails
	QuotaEmailsPerDay      = quota.EmailsPerDay
	QuotaStoredBodyBytes   = quota.StoredBodyBytes
	QuotaRecipients        = quota.Recipients
	QuotaSuppressions      = quota.Suppressions
	QuotaStoredFileBytes   = quota.StoredFileBytes
	QuotaRunningMailings   = quota.RunningMailings
	QuotaMailingRowsPerDay = quota.MailingRowsPerDay
)

// ErrQuota is quota.ErrInvalid.
var ErrQuota = quota.ErrInvalid

// Quotas lists all quotas.
func Quotas() []Quota { return quota.All() }
