package judge

import (
	"bytes"
	"context"
	"fmt"

	"email-gateway/scripts/chaos/load"
	"email-gateway/scripts/chaos/stage"
)

// tryLogs: no program panicked, and none wrote down whom it mails.
func (j *Judge) tryLogs(context.Context) error {
	secrets := append([]string{"@" + load.Domain}, load.TaxIDs...)
	for _, p := range j.stage.Programs {
		log, err := p.Log()
		if err != nil {
			return fmt.Errorf("read the log of %s: %w", p.Name, err)
		}
		if stage.Panicked(log) {
			j.Find(Crash, "%s panicked", p.Name)
		}
		for _, secret := range secrets {
			if at := bytes.Index(log, []byte(secret)); at >= 0 {
				j.Find(Leak, "the log of %s has %q", p.Name, log[max(0, at-60):min(len(log), at+60)])
			}
		}
	}
	return nil
}
