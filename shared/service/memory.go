package service

import (
	"os"
	"runtime"
)

// Ballast lets size bytes more of garbage stand before it is collected. The programs hold
// some 10 MB and make as much garbage in a few hundred emails, so with the runtime's own
// rule, to collect when there is as much garbage as memory in use, a sixth of their
// processor time went into collecting it. Memory in use that nobody ever touches costs no
// memory, but counts in that rule. Unlike a greater GOGC it adds the same however much is
// in use: with 400 % a CSV of a million rows cost the api 35 MiB more than a short one.
//
// GOGC or GOMEMLIMIT in the environment are somebody's own rule, and there is no ballast
// then. It stands until drop is called.
func Ballast(size int) (drop func()) {
	if os.Getenv("GOGC") != "" || os.Getenv("GOMEMLIMIT") != "" {
		return func() {}
	}
	untouched := make([]byte, size)
	return func() { runtime.KeepAlive(untouched) }
}
