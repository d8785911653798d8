package service

import (
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
)

const (
	// heapGrowth is GOGC: the garbage in percent of the live heap that triggers a collection. The
	// programs hold some 10 MB and produce as much garbage in a few thousand emails: with the default
	// of 100 a sixth of the api's CPU time was spent on collecting it. With 400 a CSV of a million rows
	// cost the api 35 MiB more than a short one.
	heapGrowth = 300
	// limitPercent is the part of the container's memory at which garbage is collected more often than heapGrowth says. Threads'
	// stacks, the program's code and the page cache need the rest.
	limitPercent = 85
)

// SetMemory sets GOGC to trade memory for CPU time, and GOMEMLIMIT to the container's memory, so that a peak of live memory
// costs CPU time and not the process. What the environment sets stays. Call it at the start of a program.
func SetMemory() { setMemory("/") }

func setMemory(root string) {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(heapGrowth)
	}
	if os.Getenv("GOMEMLIMIT") != "" {
		return
	}
	if limit := containerMemory(root); limit > 0 {
		debug.SetMemoryLimit(limit / 100 * limitPercent)
	}
}

// containerMemory returns the lowest memory limit of the process's control group and those above it, 0 without one. A
// program in a container sees its own group at the top of the file system, although /proc may name another path: that
// one is read too.
func containerMemory(root string) (lowest int64) {
	groups, _ := os.ReadFile(filepath.Join(root, "proc/self/cgroup")) // none on other systems than Linux
	for line := range strings.Lines(string(groups)) {
		fields := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(fields) < 3 {
			continue
		}
		base, file := filepath.Join(root, "sys/fs/cgroup"), "memory.max"
		switch controllers := strings.Split(fields[1], ","); {
		case fields[1] == "": // version 2
		case slices.Contains(controllers, "memory"):
			base, file = filepath.Join(base, "memory"), "memory.limit_in_bytes"
		default:
			continue
		}
		for path := filepath.Clean("/" + fields[2]); ; path = filepath.Dir(path) {
			text, _ := os.ReadFile(filepath.Join(base, path, file)) // not every group has one
			limit, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
			if err == nil && limit > 0 && limit < unlimited && (lowest == 0 || limit < lowest) {
				lowest = limit
			}
			if path == "/" {
				break
			}
		}
	}
	return lowest
}

// unlimited is less than what version 1 has for a group without a limit, and more than any machine's memory.
const unlimited = 1 << 50
