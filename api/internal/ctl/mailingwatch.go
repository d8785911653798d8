package ctl

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"email-gateway/api/internal/client"
	"email-gateway/shared/store"
)

// watchInterval is how often a mailing is polled; the gateway counts about as often.
const watchInterval = time.Second

// watchTimeout is how long the api may be unreachable: longer than a restart takes.
const watchTimeout = 5 * time.Minute

func (c *control) mailingWatch() *cobra.Command {
	return &cobra.Command{
		Use: "watch ID", Short: "Show a mailing's progress until it is finished",
		Long: `Shows the mailing's progress on standard error: a bar on a terminal, else lines. It waits until
the mailing is finished, also while it is paused, and continues if the api is unreachable for
less than five minutes. Interrupting it does not stop the mailing.

The exit code is 1 if the mailing was cancelled or has failed.`,
		Example: "  gatewayctl mailing watch 01a1fe26-7c3d-7e4f-8a5b-6c7d8e9f0a1b",
		Args:    exactArgs("ID"), ValidArgsFunction: c.completeMailings(),
		RunE: c.call(func(ctx context.Context, api *client.Client, args []string) (answer, error) {
			id, err := parseMailing(args[0])
			if err != nil {
				return nil, err
			}
			p := c.progress()
			defer p.end()
			return watchMailing(ctx, api, id, p)
		}),
	}
}

// watchResult is the result of mailing watch.
type watchResult struct{ mailingView }

// failure makes the command fail unless the mailing was completed.
func (v watchResult) failure() error {
	switch v.Status {
	case store.MailingCancelled:
		return errors.New("the mailing was cancelled")
	case store.MailingFailed:
		return errors.New("the mailing has FAILED: its job failed three times")
	}
	return nil
}

// watchMailing polls the mailing until it is finished. It reports progress to p.
func watchMailing(ctx context.Context, api *client.Client, id uuid.UUID, p *progress) (answer, error) {
	tick := time.NewTicker(watchInterval)
	defer tick.Stop()
	var status store.MailingStatus
	lastAnswer := time.Now()
	for {
		v, err := findMailing(ctx, api, id)
		switch {
		case ctx.Err() != nil:
			return nil, fmt.Errorf("interrupted; the mailing continues: run `gatewayctl mailing watch %s` to follow it", id)
		case err == nil && v.over():
			p.end()
			return watchResult{v}, nil
		case err == nil:
			lastAnswer = time.Now()
			if v.Status != status && v.Status == store.MailingPaused {
				p.note("The mailing is paused. To resume it: gatewayctl mailing resume %s", id)
			}
			status = v.Status
			p.update(v.step())
		case !transient(err) || time.Since(lastAnswer) > watchTimeout:
			return nil, err
		default:
			p.update(step{what: "The api does not answer", text: "retrying for another " + span(watchTimeout-time.Since(lastAnswer))})
		}
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
	}
}

// transient reports whether the error may be transient.
func transient(err error) bool {
	var unreachable *client.UnreachableError
	var refused *client.Problem
	return errors.As(err, &unreachable) || errors.As(err, &refused) &&
		(refused.Status == http.StatusTooManyRequests || refused.Status >= http.StatusInternalServerError)
}

// step describes the mailing's progress.
func (v mailingView) step() step {
	s := step{what: "Sending", done: int64(v.ended()), total: int64(v.Accepted)}
	s.text = thousands(v.ended()) + " of " + thousands(v.Accepted)
	switch v.Status {
	case store.MailingQueued, store.MailingPending:
		if v.SendAt != nil && v.SendAt.After(v.now) {
			return step{what: "Waiting", text: "until " + moment(*v.SendAt, v.now)}
		}
		s.what = "Waiting"
	case store.MailingPaused:
		s.what = "Paused"
	case store.MailingCancelled:
		s.what = "Cancelling"
	}
	if v.Rate > 0 && s.what == "Sending" {
		s.text += fmt.Sprintf(", %s/s", thousands(int(v.Rate)))
	}
	if v.EstimatedEnd != nil && s.what == "Sending" {
		s.text += ", " + left(v.EstimatedEnd.Sub(v.now))
	}
	if rest := v.troubles(); rest != "" {
		s.text += "; " + rest
	}
	return s
}

// left formats the remaining time, rounded to seconds: it is an estimate.
func left(d time.Duration) string {
	if d < 10*time.Second {
		return fmt.Sprintf("%d s left", max(int(d.Seconds()), 1))
	}
	return span(d) + " left"
}
