package mailing

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"email-gateway/api/internal/client"
	"email-gateway/api/internal/ctl/command"
	"email-gateway/api/internal/ctl/output"
	"email-gateway/api/internal/ctl/tenant"
	mailingstore "email-gateway/shared/store/mailing"
)

// watchInterval is how often a mailing is polled; the gateway counts about as often.
const watchInterval = time.Second

func watchCommand(c *command.Invocation) *cobra.Command {
	return &cobra.Command{
		Use: "watch ID", Short: "Show a mailing's progress until it is finished",
		Long: `Shows the mailing's progress on standard error: a bar on a terminal, else lines. It waits until
the mailing is finished, also while it is paused, and continues if the api is unreachable for
less than five minutes. Interrupting it does not stop the mailing.

The exit code is 1 if the mailing was cancelled or has failed.`,
		Example: "  gatewayctl mailing watch 01a1fe26-7c3d-7e4f-8a5b-6c7d8e9f0a1b",
		Args:    command.ExactArgs("ID"), ValidArgsFunction: completeMailings(c),
		RunE: tenant.Run(c, func(ctx context.Context, api *client.Client, args []string) (output.Result, error) {
			id, err := parseMailing(args[0])
			if err != nil {
				return nil, err
			}
			p := c.Progress()
			defer p.End()
			return watchMailing(ctx, api, id, p)
		}),
	}
}

// watchResult is the result of mailing watch.
type watchResult struct{ mailingView }

// Failure makes the command fail unless the mailing was completed.
func (v watchResult) Failure() error {
	switch v.Status {
	case mailingstore.Cancelled:
		return errors.New("the mailing was cancelled")
	case mailingstore.Failed:
		return errors.New("the mailing has FAILED: its job failed three times")
	}
	return nil
}

// watchMailing polls the mailing until it is finished. It reports progress to p.
func watchMailing(ctx context.Context, api *client.Client, id uuid.UUID, p *output.Progress) (output.Result, error) {
	tick := time.NewTicker(watchInterval)
	defer tick.Stop()
	var status mailingstore.Status
	lastAnswer := time.Now()
	for {
		v, err := findMailing(ctx, api, id)
		switch {
		case ctx.Err() != nil:
			return nil, fmt.Errorf("interrupted; the mailing continues: run `gatewayctl mailing watch %s` to follow it", id)
		case err == nil && v.over():
			p.End()
			return watchResult{v}, nil
		case err == nil:
			lastAnswer = time.Now()
			if v.Status != status && v.Status == mailingstore.Paused {
				p.Note("The mailing is paused. To resume it: gatewayctl mailing resume %s", id)
			}
			status = v.Status
			p.Update(v.step())
		case !tenant.Transient(err) || time.Since(lastAnswer) > tenant.WatchTimeout:
			return nil, err
		default:
			p.Update(output.Step{What: "The api does not answer", Text: "retrying for another " + output.Duration(tenant.WatchTimeout-time.Since(lastAnswer))})
		}
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
	}
}

// step describes the mailing's progress.
func (v mailingView) step() output.Step {
	s := output.Step{What: "Sending", Done: int64(v.ended()), Total: int64(v.Accepted)}
	s.Text = output.Thousands(v.ended()) + " of " + output.Thousands(v.Accepted)
	switch v.Status {
	case mailingstore.Queued, mailingstore.Pending:
		if v.SendAt != nil && v.SendAt.After(v.now) {
			return output.Step{What: "Waiting", Text: "until " + output.RelativeTime(*v.SendAt, v.now)}
		}
		s.What = "Waiting"
	case mailingstore.Paused:
		s.What = "Paused"
	case mailingstore.Cancelled:
		s.What = "Cancelling"
	}
	if v.Rate > 0 && s.What == "Sending" {
		s.Text += fmt.Sprintf(", %s/s", output.Thousands(int(v.Rate)))
	}
	if v.EstimatedEnd != nil && s.What == "Sending" {
		s.Text += ", " + left(v.EstimatedEnd.Sub(v.now))
	}
	if rest := v.unsuccessfulCounts(); rest != "" {
		s.Text += "; " + rest
	}
	return s
}

// left formats the remaining time, rounded to seconds: it is an estimate.
func left(d time.Duration) string {
	if d < 10*time.Second {
		return fmt.Sprintf("%d s left", max(int(d.Seconds()), 1))
	}
	return output.Duration(d) + " left"
}
