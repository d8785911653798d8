package local

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// SignalAll signals the service's process and all its descendants: Postgres has one process per
// connection. SIGSTOP is sent to the parent first, so that it starts no further children; SIGCONT
// is sent to it last.
func (s *Service) SignalAll(signal syscall.Signal) error {
	pid, err := s.PID()
	if err != nil {
		return err
	}
	if signal == syscall.SIGSTOP {
		err = signalEach([]int{pid}, signal)
	}
	family, listing := descendants(pid)
	if signal == syscall.SIGCONT {
		slices.Reverse(family)
	}
	if err := errors.Join(err, listing, signalEach(family, signal)); err != nil {
		return fmt.Errorf("signal %s and its children: %w", s.Name, err)
	}
	return nil
}

// signalEach ignores exited processes.
func signalEach(pids []int, signal syscall.Signal) error {
	for _, pid := range pids {
		if err := syscall.Kill(pid, signal); err != nil && !errors.Is(err, syscall.ESRCH) {
			return err
		}
	}
	return nil
}

// descendants lists a process and all below it, parents before children.
func descendants(pid int) ([]int, error) {
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	children := make(map[int][]int)
	for _, stat := range stats {
		text, err := os.ReadFile(stat)
		if err != nil {
			continue // it has exited meanwhile
		}
		// "pid (name) state parent …"; the name may contain any character.
		fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
		if len(fields) < 2 {
			continue
		}
		child, err := strconv.Atoi(filepath.Base(filepath.Dir(stat)))
		parent, failed := strconv.Atoi(fields[1])
		if err == nil && failed == nil {
			children[parent] = append(children[parent], child)
		}
	}
	family := []int{pid}
	for i := 0; i < len(family); i++ {
		family = append(family, children[family[i]]...)
	}
	return family, nil
}
