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

const (
	// watchInterval is how often a mailing is looked at: the gateway counts about as often.
	watchInterval = time.Second
	// watchPatience is how long the api may be away: longer than a restart takes.
	watchPatience = 5 * time.Minute
)

func (c *control) mailingWatch() *cobra.Command {
	return &cobra.Command{
		Use: "watch ID", Short: "Show how far a mailing is until it has ended",
		Long: `Shows how far the mailing is, on standard error: with a bar on a terminal, else in lines.
It stays until the mailing has ended, also while that is paused, and goes on when the api
was away for less than five minutes. Interrupting it does not stop the mailing.

It ends with 1 if the mailing was cancelled or has failed.`,
		Example: "  gatewayctl mailing watch 01a1fe26-7c3d-7e4f-8a5b-6c7d8e9f0a1b",
		Args:    needs("ID"), ValidArgsFunction: c.completeMailings,
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

// watched is a mailing that has ended, as mailing watch tells of it.
type watched struct{ mailingView }

// failure makes a mailing that was not carried out the command's own failure.
func (v watched) failure() error {
	switch v.Status {
	case store.MailingCancelled:
		return errors.New("the mailing was cancelled")
	case store.MailingFailed:
		return errors.New("the mailing has FAILED: its job was tried three times")
	}
	return nil
}

// watchMailing looks at the mailing until it has ended. What it tells is not the answer.
func watchMailing(ctx context.Context, api *client.Client, id uuid.UUID, p *progress) (answer, error) {
	tick := time.NewTicker(watchInterval)
	defer tick.Stop()
	var status store.MailingStatus
	heard := time.Now()
	for {
		v, err := findMailing(ctx, api, id)
		switch {
		case ctx.Err() != nil:
			return nil, fmt.Errorf("interrupted, and the mailing goes on: `gatewayctl mailing watch %s` looks again", id)
		case err == nil && v.over():
			p.end()
			return watched{v}, nil
		case err == nil:
			heard = time.Now()
			if v.Status != status && v.Status == store.MailingPaused {
				p.say("The mailing is paused. To let it go on: gatewayctl mailing resume %s", id)
			}
			status = v.Status
			p.tell(v.step())
		case !passing(err) || time.Since(heard) > watchPatience:
			return nil, err
		default:
			p.tell(step{what: "The api does not answer", text: "asked again for " + span(watchPatience-time.Since(heard))})
		}
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
	}
}

// passing says that the api may answer another time.
func passing(err error) bool {
	var silent *client.UnreachableError
	var refused *client.Problem
	return errors.As(err, &silent) || errors.As(err, &refused) &&
		(refused.Status == http.StatusTooManyRequests || refused.Status >= http.StatusInternalServerError)
}

// step is how far the mailing is.
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

// left is how long something takes yet. It is a guess, so seconds will do.
func left(d time.Duration) string {
	if d < 10*time.Second {
		return fmt.Sprintf("%d s left", max(int(d.Seconds()), 1))
	}
	return span(d) + " left"
}
