package judge

import (
	"context"
	"fmt"

	"email-gateway/scripts/chaos/load"
	"email-gateway/scripts/chaos/stage"
)

// tryLogs: no program panicked, and none wrote down whom it mails.
func (j *Judge) tryLogs(context.Context) error {
	for _, p := range j.stage.Programs {
		log, err := p.Log()
		if err != nil {
			return fmt.Errorf("read the log of %s: %w", p.Name, err)
		}
		if stage.Panicked(log) {
			j.Find(Crash, "%s panicked", p.Name)
		}
		for _, at := range [][]int{load.FindAddress(log), load.FindTaxID(log)} {
			if at != nil {
				j.Find(Leak, "the log of %s has %q", p.Name, log[max(0, at[0]-60):min(len(log), at[1]+60)])
			}
		}
	}
	return nil
}
