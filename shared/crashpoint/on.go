//go:build crashpoints

package crashpoint

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
)

// armed is the place at which this process crashes, from its environment.
var armed = arm(os.Getenv("CRASH_AT"), os.Getenv("CRASH_WITH"))

type trap struct {
	point Point // "" = none
	left  atomic.Int64
	stop  bool
}

// At kills or freezes the process if this is the place. It prints that to standard error first, so
// that a test can distinguish this crash from others.
func At(p Point) {
	if p != armed.point || armed.left.Add(-1) != 0 {
		return
	}
	fmt.Fprintln(os.Stderr, "crash point reached:", p)
	if !armed.stop {
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {} // execute nothing more
	}
	resumed := make(chan os.Signal, 1)
	signal.Notify(resumed, syscall.SIGCONT)
	_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP)
	<-resumed // the signal may stop another thread first
	signal.Stop(resumed)
}

// arm parses the environment. An unknown place would never be reached, and the test would appear to
// pass: it ends the process at once.
func arm(at, with string) *trap {
	t, err := parse(at, with)
	if err != nil {
		fmt.Fprintln(os.Stderr, "crashpoint:", err)
		os.Exit(2) //nolint:forbidigo // this build is never released
	}
	return t
}

func parse(at, with string) (*trap, error) {
	t := &trap{stop: with == "STOP"}
	if at == "" {
		return t, nil
	}
	name, count, counted := strings.Cut(at, ":")
	n := 1
	if counted {
		var err error
		if n, err = strconv.Atoi(count); err != nil || n < 1 {
			return nil, fmt.Errorf("CRASH_AT: %q is not a number of times", count)
		}
	}
	if t.point = Point(name); !slices.Contains(Points(), t.point) {
		return nil, fmt.Errorf("CRASH_AT: there is no point %q", name)
	}
	if with != "" && with != "KILL" && with != "STOP" {
		return nil, errors.New("CRASH_WITH: must be KILL or STOP")
	}
	t.left.Store(int64(n))
	return t, nil
}
