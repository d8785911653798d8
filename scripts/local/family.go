package local

import (
	"errors"
	"fmt"
	"slices"
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
	all, listing := listProcesses()
	family := all.family(pid)
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
