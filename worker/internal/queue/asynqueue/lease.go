package asynqueue

import "time"

// clockSkew is the tolerated difference between the clocks of two machines, because the clock of a worker set the lease. asynq
// allows 30 s and checks once per minute, which would delay an email of a dead worker by up to two minutes.
const clockSkew = 5 * time.Second

// farthest is how far ahead of the own clock a score may be that a worker has set: a lease is 30 s, the longest delay of a task
// is 30 s and half a second for rounding, and clockSkew is added. A score beyond that is of a worker whose clock was ahead, and
// was killed or stopped: until its time asynq would neither recover nor forward the task. If that worker is still running, the
// claim of the email prevents a second send.
const farthest = 36 * time.Second

// scoresNow returns the first and the last score, in Unix seconds, with which a task can be in work or delayed: see isCurrent.
func scoresNow() (first, last int64) {
	now := time.Now()
	return now.Add(-clockSkew).Unix(), now.Add(farthest).Unix()
}

// isCurrent is a function for scripts. It reports whether a score (false if there is none) is one that a running worker may
// have set.
const isCurrent = `
local function current(score, first, last)
    return score and tonumber(score) >= tonumber(first) and tonumber(score) <= tonumber(last)
end
`
