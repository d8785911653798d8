package store

import (
	"email-gateway/shared/store/dispatch"
)

// Types of package dispatch.
type (
	ErasedTask      = dispatch.ErasedTask
	Backlog         = dispatch.Backlog
	ExpiringLetters = dispatch.ExpiringLetters
	LaneAge         = dispatch.LaneAge
	DueRow          = dispatch.DueRow
	OverdueEmail    = dispatch.OverdueEmail
	WaitingLane     = dispatch.WaitingLane
	Position        = dispatch.Position
	WaitingLanes    = dispatch.WaitingLanes
	LaneProbe       = dispatch.LaneProbe
	LaneTurn        = dispatch.LaneTurn
	UnknownOutcome  = dispatch.UnknownOutcome
	UnresolvedPlace = dispatch.UnresolvedPlace
	LongEnqueued    = dispatch.LongEnqueued
	Returned        = dispatch.Returned
	Batch           = dispatch.Batch
	Slot            = dispatch.Slot
	Release         = dispatch.Release
	Probe           = dispatch.Probe

	dispatching = dispatch.Store
)

// EvenTurns returns a turn of at most most rows for each of the lanes.
func EvenTurns(lanes []int64, most int) []LaneTurn { return dispatch.EvenTurns(lanes, most) }
