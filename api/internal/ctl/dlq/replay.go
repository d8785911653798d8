package dlq

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/google/uuid"

	"email-gateway/api/internal/ctl/command"
	"email-gateway/api/internal/ctl/output"
	"email-gateway/shared/store"
	"email-gateway/shared/store/deadletter"
)

const (
	// followInterval is how often a replay is polled; after silence without progress, the user
	// is asked to check the dispatcher.
	followInterval = 500 * time.Millisecond
	silence        = 10 * time.Second
)

// follow shows a replay's progress on standard error until it is completed, because progress
// is not the command's output.
func follow(ctx context.Context, c *command.Invocation, s *store.Store, r deadletter.Replay) (deadletter.Replay, error) {
	tick := time.NewTicker(followInterval)
	defer tick.Stop()
	report := func(format string, args ...any) {
		if !c.JSON {
			fmt.Fprintf(c.Stderr, format+"\n", args...)
		}
	}
	moved := time.Now()
	for {
		select {
		case <-ctx.Done():
			return r, fmt.Errorf("interrupted; the replay continues: run `gatewayctl dlq show %s` to see its progress", r.ID)
		case <-tick.C:
		}
		now, err := s.FindAnyReplay(ctx, r.ID)
		if err != nil {
			if ctx.Err() != nil {
				continue
			}
			return r, fmt.Errorf("%w (the replay %s continues)", err, r.ID)
		}
		if now.ReplayCounts != r.ReplayCounts {
			moved = time.Now()
			report("%d of %d, %d skipped, %d failed", now.Done, now.Matched, now.Skipped, now.Failed)
		} else if time.Since(moved) > silence {
			moved = time.Now()
			report("no progress for %s: is a dispatcher running?", output.Duration(silence))
		}
		if r = now; r.Status == deadletter.ReplayCompleted {
			return r, nil
		}
	}
}

// replayView is a replay. Its JSON names are those of the HTTP API.
type replayView struct {
	ReplayID   *uuid.UUID              `json:"replayId,omitempty"` // nil if nothing matched
	CompanyID  *uuid.UUID              `json:"companyId,omitempty"`
	Action     deadletter.ReplayAction `json:"action"`
	Status     deadletter.ReplayStatus `json:"status"`
	Filter     deadletter.LetterFilter `json:"filter"`
	Limit      *int                    `json:"limit,omitempty"`
	Rate       int                     `json:"rate"`
	Note       string                  `json:"note,omitempty"`
	By         string                  `json:"requestedBy,omitempty"`
	Matched    int                     `json:"matched"`
	Done       int                     `json:"done"`
	Skipped    int                     `json:"skipped"`
	Failed     int                     `json:"failed"`
	CreatedAt  *time.Time              `json:"createdAt,omitempty"`
	FinishedAt *time.Time              `json:"finishedAt,omitempty"`
}

func viewReplay(r deadletter.Replay) replayView {
	return replayView{
		ReplayID: &r.ID, CompanyID: r.CompanyID, Action: r.Action, Status: r.Status, Filter: r.Filter, Limit: r.Most, Rate: r.Rate,
		Note: output.Optional(r.Note), By: r.RequestedBy, Matched: r.Matched, Done: r.Done, Skipped: r.Skipped, Failed: r.Failed,
		CreatedAt: output.UTC(&r.CreatedAt), FinishedAt: output.UTC(r.FinishedAt),
	}
}

func (v replayView) WriteText(w io.Writer) {
	if v.ReplayID == nil {
		fmt.Fprintln(w, "No open dead letter matches.")
		return
	}
	done := (&replayOptions{action: v.Action}).done()
	if v.Status == deadletter.ReplayCompleted {
		fmt.Fprintf(w, "%s %s in %s.\n", output.Plural(v.Done, "dead letter was", "dead letters were"), done, output.Duration(v.FinishedAt.Sub(*v.CreatedAt)))
	} else {
		fmt.Fprintf(w, "%d of %d dead letters are %s so far, at most %d per second.\n", v.Done, v.Matched, done, v.Rate)
	}
	if v.Skipped > 0 {
		fmt.Fprintf(w, "%d skipped and still open: nothing was left to retry.\n", v.Skipped)
	}
	if v.Failed > 0 {
		fmt.Fprintf(w, "%d failed and still open: the database rejected the change; see the dispatcher's log.\n", v.Failed)
	}
	fmt.Fprintf(w, "To see it again: gatewayctl dlq show %s\n", v.ReplayID)
}

// replayEnd is the result of a command that waited for a replay.
type replayEnd struct{ replayView }

// Failure makes the command fail if a dead letter stays open, so that a script sees it.
func (v replayEnd) Failure() error {
	if left := v.Skipped + v.Failed; v.Status == deadletter.ReplayCompleted && left > 0 {
		return fmt.Errorf("%s open", output.Plural(left, "dead letter stays", "dead letters stay"))
	}
	return nil
}
