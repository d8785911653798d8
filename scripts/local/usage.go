package local

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// Usage is the resource usage of a process and its children.
type Usage struct {
	// CPU is user and system time since the start, including that of exited children.
	CPU time.Duration
	// Resident is the process's current memory, Peak its maximum, in bytes. Both include shared
	// memory (Postgres's buffers).
	Resident, Peak int64
}

// tick is the unit of times in /proc: USER_HZ, which is 100 on every Linux.
const tick = 10 * time.Millisecond

// UsageOf reads the usage of a process by its id.
func UsageOf(pid int) (u Usage, err error) {
	all, err := listProcesses()
	if err != nil {
		return u, err
	}
	if _, ok := all.spent[pid]; !ok {
		return u, fmt.Errorf("read the usage of process %d: it has exited", pid)
	}
	for _, one := range all.family(pid) {
		u.CPU += all.spent[one]
	}
	u.Resident, u.Peak, err = memory(pid)
	return u, err
}

// PeakMemory returns the maximum resident memory of a process in bytes. The kernel records it, so that one
// between two calls counts.
func PeakMemory(pid int) (int64, error) {
	_, peak, err := memory(pid)
	return peak, err
}

func memory(pid int) (resident, peak int64, err error) {
	status, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "status"))
	if err != nil {
		return 0, 0, fmt.Errorf("read the memory of process %d: %w", pid, err)
	}
	return statusBytes(status, "VmRSS"), statusBytes(status, "VmHWM"), nil
}

// processes are those of this machine.
type processes struct {
	children map[int][]int         // by parent
	spent    map[int]time.Duration // CPU time, also of exited children
}

func listProcesses() (processes, error) {
	all := processes{children: make(map[int][]int), spent: make(map[int]time.Duration)}
	files, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return all, fmt.Errorf("list processes: %w", err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // it has exited meanwhile
		}
		id, parent, spent, err := readStat(text)
		if err != nil {
			return all, fmt.Errorf("read %s: %w", file, err)
		}
		all.children[parent] = append(all.children[parent], id)
		all.spent[id] = spent
	}
	return all, nil
}

// family lists a process and all below it, parents before children.
func (all processes) family(pid int) []int {
	family := []int{pid}
	for i := 0; i < len(family); i++ {
		family = append(family, all.children[family[i]]...)
	}
	return family
}

// readStat parses a line of /proc/PID/stat. The second field is the program's name in parentheses,
// which may contain any character; times are those of the process and of its exited children.
func readStat(line []byte) (pid, parent int, spent time.Duration, err error) {
	open, shut := bytes.IndexByte(line, '('), bytes.LastIndexByte(line, ')')
	if open < 0 || shut < 0 {
		return 0, 0, 0, errors.New("it has no name")
	}
	rest := strings.Fields(string(line[shut+1:]))
	if len(rest) < 15 {
		return 0, 0, 0, errors.New("it is too short")
	}
	if pid, err = strconv.Atoi(strings.TrimSpace(string(line[:open]))); err != nil {
		return 0, 0, 0, err
	}
	if parent, err = strconv.Atoi(rest[1]); err != nil {
		return 0, 0, 0, err
	}
	for _, field := range rest[11:15] { // utime, stime, cutime, cstime
		ticks, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return 0, 0, 0, err
		}
		spent += time.Duration(ticks) * tick
	}
	return pid, parent, spent, nil
}

// statusBytes parses a line like "VmRSS: 1234 kB" of /proc/PID/status; 0 if there is none, as in a
// process that is about to exit.
func statusBytes(status []byte, name string) int64 {
	for line := range bytes.Lines(status) {
		value, ok := bytes.CutPrefix(line, []byte(name+":"))
		if !ok {
			continue
		}
		kB, _ := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(string(value)), "kB")), 10, 64)
		return kB << 10
	}
	return 0
}
