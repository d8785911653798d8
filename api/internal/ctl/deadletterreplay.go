package ctl

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"email-gateway/shared/store"
)

// replayOrder is what an operator asks for about dead letters.
type replayOrder struct {
	letterChoice
	action           store.ReplayAction
	limit, rate      int
	reason           string
	all, yes, detach bool
}

func (c *control) deadLetterRetry() *cobra.Command {
	order := replayOrder{action: store.ReplayRetry}
	return c.replayCommand(&order, &cobra.Command{
		Use: "retry [ID]", Short: "Send again what dead letters tell of",
		Long: `Sends again what one dead letter tells of, or, without an ID, all open ones that the flags
choose: emails with all their tries and a new deadline, news of recipients, failed mailings.

Many are worked off by a dispatcher, the oldest first and at most --rate a second. Those
that are written while it runs are left alone, so what fails again is not sent for ever.
The command shows how far it has come; it goes on when the command is interrupted.

A single email's new deadline is EMAIL_TTL away, which is 24h if it is not set here.`,
		Example: `  gatewayctl dlq retry 7d1e5a64-0b56-4a3e-8f0d-2f6a8f2f4c11
  gatewayctl dlq retry --company Acme --code SES_MESSAGE_REJECTED --since 2h --rate 200 --yes
  gatewayctl dlq retry --all --yes`,
	})
}

func (c *control) deadLetterDiscard() *cobra.Command {
	order := replayOrder{action: store.ReplayDiscard}
	return c.replayCommand(&order, &cobra.Command{
		Use: "discard [ID]", Short: "Resolve dead letters and do nothing about them",
		Long: `Resolves one dead letter or, without an ID, all open ones that the flags choose. Nothing
is sent; their emails stay FAILED.

Many are worked off by a dispatcher, the oldest first and at most --rate a second.`,
		Example: `  gatewayctl dlq discard 7d1e5a64-0b56-4a3e-8f0d-2f6a8f2f4c11 --reason 'typo in the address'
  gatewayctl dlq discard --mailing 01a1fe26-7c3d-7e4f-8a5b-6c7d8e9f0a1b --reason 'list was bought' --yes`,
	})
}

func (c *control) replayCommand(order *replayOrder, cmd *cobra.Command) *cobra.Command {
	cmd.Args = func(_ *cobra.Command, args []string) error {
		if len(args) > 1 {
			return fmt.Errorf("%s too many", plural(len(args)-1, "argument", "arguments"))
		}
		return nil
	}
	cmd.RunE = c.run(func(ctx context.Context, s *store.Store, args []string) (answer, error) {
		if err := order.check(args); err != nil {
			return nil, err
		}
		who := c.who
		if order.action == store.ReplayDiscard {
			who = c.whoAndWhy
		}
		by, err := who(order.reason)
		switch {
		case err != nil:
			return nil, err
		case len(args) == 1:
			return c.replayOne(ctx, s, by, order, args[0])
		}
		return c.replayMany(ctx, s, by, order)
	})
	c.letterFlags(cmd, &order.letterChoice)
	flags := cmd.Flags()
	flags.BoolVar(&order.all, "all", false, "all open ones, when no other flag chooses")
	flags.IntVar(&order.limit, "limit", 0, "at most `N`, the oldest of them; 0 = all that were chosen")
	flags.IntVar(&order.rate, "rate", 100, "`N` per second, 1 to 1000")
	flags.BoolVar(&order.yes, "yes", false, "do it; without it, many are only counted")
	flags.BoolVar(&order.detach, "detach", false, "do not wait for the end of many")
	cmd.ValidArgsFunction = c.completeLetters
	return because(cmd, &order.reason, order.action == store.ReplayDiscard)
}

func (o *replayOrder) check(args []string) error {
	switch {
	case len(args) == 1 && (o.chosen() || o.all):
		return usagef("give an ID, or flags that choose many, not both")
	case len(args) == 0 && !o.chosen() && !o.all:
		return usagef("give an ID, flags that choose, or --all")
	case o.rate < 1 || o.rate > store.MaxReplayRate:
		return usagef("--rate must be 1 to %d", store.MaxReplayRate)
	case o.limit < 0:
		return usagef("--limit must be 0 (all) or more")
	case o.code == "" && codeLike.MatchString(o.reason):
		// It would do more than was meant.
		return usagef("--reason %s is a code, which --code chooses by; --reason says why you do it", o.reason)
	}
	return nil
}

// codeLike is what the codes of dead letters look like, and nobody's words.
var codeLike = regexp.MustCompile(`^[A-Z][A-Z0-9]*(_[A-Z0-9]+)+$`)

// done is what a replay's action has made of a dead letter.
func (o *replayOrder) done() string {
	if o.action == store.ReplayDiscard {
		return "discarded"
	}
	return "sent again"
}

// letterDone is a single dead letter after it was resolved.
type letterDone struct{ letterView }

func (v letterDone) text(w io.Writer) {
	fmt.Fprintf(w, "Dead letter %s is %s.\n", v.ID, v.state())
	if v.OutboxID != nil && *v.Resolution == store.Retried {
		fmt.Fprintf(w, "To see what becomes of its email: gatewayctl email show %s\n", v.OutboxID)
	}
}

func (c *control) replayOne(ctx context.Context, s *store.Store, by store.Operator, o *replayOrder, given string) (answer, error) {
	found, err := findLetter(ctx, s, given)
	if err != nil {
		return nil, err
	}
	if o.action == store.ReplayDiscard {
		did, err := s.DiscardDeadLetterAs(ctx, by, found)
		if err == nil && !did {
			err = fmt.Errorf("dead letter %s is resolved already: `gatewayctl dlq show %s` tells how", found.ID, found.ID)
		}
		if err != nil {
			return nil, err
		}
	} else {
		ttl, err := c.ttl()
		if err != nil {
			return nil, err
		}
		err = s.RetryDeadLetterAs(ctx, by, found, ttl)
		var nothing *store.NotReplayableError
		if errors.As(err, &nothing) {
			return nil, fmt.Errorf("dead letter %s cannot be sent again: %s", found.ID, nothing.Reason)
		}
		if err != nil {
			return nil, err
		}
		if err := s.Wake(ctx); err != nil {
			return nil, err
		}
	}
	after, err := s.FindAnyDeadLetter(ctx, found.ID)
	if err != nil {
		return nil, err
	}
	return letterDone{viewLetter(after, nil, true)}, nil
}

func (c *control) replayMany(ctx context.Context, s *store.Store, by store.Operator, o *replayOrder) (answer, error) {
	company, filter, err := o.filter(ctx, s)
	if err != nil {
		return nil, err
	}
	n, err := s.CountDeadLetters(ctx, company, filter)
	switch {
	case err != nil:
		return nil, err
	case n == 0:
		return replayView{Action: o.action, Status: store.ReplayCompleted, Filter: filter, Rate: o.rate}, nil
	case !o.yes:
		return nil, fmt.Errorf("%s would be %s, and nothing was done yet: add --yes",
			plural(atMost(n, o.limit), "dead letter", "dead letters"), o.done())
	}
	id, err := uuid.NewV7()
	if err != nil {
		return nil, fmt.Errorf("make id: %w", err)
	}
	made, err := s.CreateReplayAs(ctx, by, store.NewReplay{
		ID: id, CompanyID: company, Action: o.action, Filter: filter, RequestID: "gatewayctl-" + id.String(), Most: o.limit, Rate: o.rate,
	})
	if err != nil || o.detach {
		return viewReplay(made), err
	}
	ended, err := c.follow(ctx, s, made)
	return viewReplay(ended), err
}

// ttl is the deadline of an email that is sent again.
func (c *control) ttl() (time.Duration, error) {
	ttl, err := time.ParseDuration(cmp.Or(c.Getenv("EMAIL_TTL"), "24h"))
	if err != nil || ttl < time.Minute || ttl > 720*time.Hour {
		return 0, usagef("EMAIL_TTL must be 1m to 720h, as it is for the api")
	}
	return ttl, nil
}

func atMost(n, limit int) int {
	if limit > 0 {
		return min(n, limit)
	}
	return n
}
