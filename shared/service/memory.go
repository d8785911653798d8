package service

import (
	"os"
	"runtime"
	"runtime/debug"
)

// heapGrowth is how much garbage may come on top of what is in use before it is collected,
// in percent of that. The programs hold some 10 MB and make as much garbage in a few
// thousand emails: with the runtime's 100 % a sixth of the api's processor time went into
// collecting it. With 400 a CSV of a million rows cost the api 35 MiB more than a short one.
const heapGrowth = 300

// TradeMemory gives the collector more memory and less to do, unless GOGC says how much.
// It is for the start of a program.
func TradeMemory() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(heapGrowth)
	}
}

// Ballast is size bytes that nobody ever touches, so that they cost no memory; but they count
// as in use, and so much more garbage may stand, by the collector's percentage. It is for
// what makes collecting dear beyond what is in use: goroutines, whose stacks are looked
// through, made smaller, and grow again. With GOGC or GOMEMLIMIT in the environment, which
// are somebody's own rule, there is none. It stands until drop is called.
func Ballast(size int) (drop func()) {
	if os.Getenv("GOGC") != "" || os.Getenv("GOMEMLIMIT") != "" {
		return func() {}
	}
	untouched := make([]byte, size)
	return func() { runtime.KeepAlive(untouched) }
}
