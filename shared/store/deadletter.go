package store

import (
	"email-gateway/shared/store/deadletter"
)

// Types of package deadletter.
type (
	Resolution         = deadletter.Resolution
	DeadLetter         = deadletter.Letter
	ShownDeadLetter    = deadletter.Shown
	LetterFilter       = deadletter.LetterFilter
	LetterCursor       = deadletter.LetterCursor
	LetterQuery        = deadletter.LetterQuery
	LetterPage         = deadletter.LetterPage
	ReplayAction       = deadletter.ReplayAction
	ReplayStatus       = deadletter.ReplayStatus
	NewReplay          = deadletter.NewReplay
	Replay             = deadletter.Replay
	ReplayCounts       = deadletter.ReplayCounts
	ReplayRound        = deadletter.ReplayRound
	LetterRetry        = deadletter.LetterRetry
	NotReplayableError = deadletter.NotReplayableError
	DeadTask           = deadletter.Task

	deadLetters = deadletter.Store
)

// Constants of package deadletter.
const (
	Retried           = deadletter.Retried
	Discarded         = deadletter.Discarded
	ReplayRetry       = deadletter.ReplayRetry
	ReplayDiscard     = deadletter.ReplayDiscard
	ReplayRunning     = deadletter.ReplayRunning
	ReplayCompleted   = deadletter.ReplayCompleted
	MaxReplayRate     = deadletter.MaxReplayRate
	MaxRunningReplays = deadletter.MaxRunningReplays
	EmailLettersKept  = deadletter.EmailLettersKept
)

// ErrTooManyReplays is deadletter.ErrTooManyReplays.
var ErrTooManyReplays = deadletter.ErrTooManyReplays

// ErrReplayLocked: another transaction has locked a dead letter that WorkReplay had to discard. Nothing was discarded.
var ErrReplayLocked = deadletter.ErrReplayLocked
