package store

import (
	"email-gateway/shared/store/mailing"
)

// Types of package mailing.
type (
	MailingStateError   = mailing.StateError
	MailingsPausedError = mailing.PausedError
	OpenMailing         = mailing.OpenMailing
	MailingTally        = mailing.Tally
	MailingEntry        = mailing.Entry
	EntryFilter         = mailing.EntryFilter
	ExpandedEntry       = mailing.ExpandedEntry
	Expansion           = mailing.Expansion
	Continuation        = mailing.Continuation
	NewMailing          = mailing.NewMailing
	MailingCounts       = mailing.Counts
	FilenameUsedError   = mailing.FilenameUsedError
	MailingJob          = mailing.Job
	MailingLock         = mailing.Lock
	FailedJob           = mailing.FailedJob
	NewEntry            = mailing.NewEntry
	RejectedLine        = mailing.RejectedLine
	MailingLine         = mailing.Line
	ExpandableEntry     = mailing.ExpandableEntry
	EntryPage           = mailing.EntryPage
	MailingRoom         = mailing.Room
	Waiting             = mailing.Waiting
	RecoveredMailing    = mailing.RecoveredMailing
	MailingRow          = mailing.Row
	RowCursor           = mailing.RowCursor
	RowFilter           = mailing.RowFilter
	RowPage             = mailing.RowPage
	EntryAction         = mailing.EntryAction
	EntryActionResult   = mailing.EntryActionResult
	MailingTemplates    = mailing.Templates
	MailingStatus       = mailing.Status
	Mailing             = mailing.Mailing

	mailings = mailing.Store
)

// Constants of package mailing.
const (
	MailingLocked      = mailing.Locked
	MailingUnknown     = mailing.Unknown
	MailingObsolete    = mailing.Obsolete
	MailingHeld        = mailing.Held
	MailingSilent      = mailing.Silent
	CodeDuplicate      = mailing.CodeDuplicate
	CodeEmptyField     = mailing.CodeEmptyField
	Unlimited          = mailing.Unlimited
	WaitsForReputation = mailing.WaitsForReputation
	RowDuplicate       = mailing.RowDuplicate
	ActionCancel       = mailing.ActionCancel
	ActionRetryFailed  = mailing.ActionRetryFailed
	MailingQueued      = mailing.Queued
	MailingPending     = mailing.Pending
	MailingSending     = mailing.Sending
	MailingPaused      = mailing.Paused
	MailingCompleted   = mailing.Completed
	MailingCancelled   = mailing.Cancelled
	MailingFailed      = mailing.Failed
)
