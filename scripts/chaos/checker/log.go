package checker

import (
	"context"
	"fmt"

	"email-gateway/scripts/chaos/cluster"
	"email-gateway/scripts/chaos/load"
)

// checkLogs checks that no program panicked or exited unexpectedly, and that logs contain no addresses or CPFs.
func (c *Checker) checkLogs(context.Context) error {
	for _, p := range c.cluster.Programs {
		for _, exit := range p.UnexpectedExits() {
			if exit.Listened {
				c.Findings.Add(Crash, "%s exited after it had listened: %s", p.Name, exit.Error)
			}
		}
		log, err := p.Log()
		if err != nil {
			return fmt.Errorf("read the log of %s: %w", p.Name, err)
		}
		if cluster.Panicked(log) {
			c.Findings.Add(Crash, "%s panicked", p.Name)
		}
		for _, at := range [][]int{load.FindAddress(log), load.FindTaxID(log)} {
			if at != nil {
				c.Findings.Add(Leak, "the log of %s has %q", p.Name, log[max(0, at[0]-60):min(len(log), at[1]+60)])
			}
		}
	}
	return nil
}
