package dlq

import (
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"

	"github.com/spf13/cobra"

	"email-gateway/api/internal/ctl/command"
	"email-gateway/api/internal/ctl/operator"
	"email-gateway/api/internal/ctl/output"
	"email-gateway/shared/store"
	"email-gateway/shared/store/audit"
	"email-gateway/shared/store/deadletter"
	"email-gateway/shared/uuidv7"
)

// replayOptions holds the flags of dlq retry and dlq discard.
type replayOptions struct {
	deadLetterChoice
	action           deadletter.ReplayAction
	limit, rate      int
	reason           string
	all, yes, detach bool
}

func retryCommand(c *command.Invocation) *cobra.Command {
	order := replayOptions{action: deadletter.ReplayRetry}
	return replayCommand(c, &order, &cobra.Command{
		Use: "retry [ID]", Short: "Retry dead letters",
		Long: `Retries one dead letter or, without an ID, all open ones that the flags select: emails with
all their tries and a new deadline, recipient updates, failed mailings.

The dispatcher processes a selection oldest first, at most --rate per second. Dead letters
that are written meanwhile are not included, so an email that fails again is not retried
forever. The command shows the progress; interrupting it does not stop the replay.

The new deadline of a single email is EMAIL_TTL from now (24h if it is not set here).`,
		Example: `  gatewayctl dlq retry 7d1e5a64-0b56-4a3e-8f0d-2f6a8f2f4c11
  gatewayctl dlq retry --company Acme --code SES_MESSAGE_REJECTED --since 2h --rate 200 --yes
  gatewayctl dlq retry --all --yes`,
	})
}

func discardCommand(c *command.Invocation) *cobra.Command {
	order := replayOptions{action: deadletter.ReplayDiscard}
	return replayCommand(c, &order, &cobra.Command{
		Use: "discard [ID]", Short: "Resolve dead letters without retrying them",
		Long: `Resolves one dead letter or, without an ID, all open ones that the flags select. Nothing is
sent; the emails stay FAILED. A mailing whose job failed is cancelled: see gatewayctl company
cancel-mailing.

The dispatcher processes a selection oldest first, at most --rate per second.`,
		Example: `  gatewayctl dlq discard 7d1e5a64-0b56-4a3e-8f0d-2f6a8f2f4c11 --reason 'typo in the address'
  gatewayctl dlq discard --mailing 01a1fe26-7c3d-7e4f-8a5b-6c7d8e9f0a1b --reason 'list was bought' --yes`,
	})
}

func replayCommand(c *command.Invocation, order *replayOptions, cmd *cobra.Command) *cobra.Command {
	cmd.Args = func(_ *cobra.Command, args []string) error {
		if len(args) > 1 {
			return fmt.Errorf("%s too many", output.Plural(len(args)-1, "argument", "arguments"))
		}
		return nil
	}
	cmd.RunE = operator.Run(c, func(ctx context.Context, s *store.Store, args []string) (output.Result, error) {
		if err := order.check(args); err != nil {
			return nil, err
		}
		by, err := operator.Identity(c, order.reason)
		if order.action == deadletter.ReplayDiscard {
			by, err = operator.IdentityWithReason(c, order.reason)
		}
		switch {
		case err != nil:
			return nil, err
		case len(args) == 1:
			return replayOne(ctx, c, s, by, order, args[0])
		}
		return replayMany(ctx, c, s, by, order)
	})
	addFlags(c, cmd, &order.deadLetterChoice)
	flags := cmd.Flags()
	flags.BoolVar(&order.all, "all", false, "select all open dead letters if no other flag selects any")
	flags.IntVar(&order.limit, "limit", 0, "process at most `N`, oldest first; 0 = all selected")
	flags.IntVar(&order.rate, "rate", 100, "process at most `N` per second, 1 to 1000")
	flags.BoolVar(&order.yes, "yes", false, "confirm; without it, a selection is only counted")
	flags.BoolVar(&order.detach, "detach", false, "do not wait until a selection is processed")
	cmd.ValidArgsFunction = completeDeadLetters(c)
	return operator.ReasonFlag(cmd, &order.reason, order.action == deadletter.ReplayDiscard)
}

func (o *replayOptions) check(args []string) error {
	switch {
	case len(args) == 1 && (o.chosen() || o.all):
		return command.Usagef("give either an ID or flags that select dead letters, not both")
	case len(args) == 0 && !o.chosen() && !o.all:
		return command.Usagef("give an ID, flags that select dead letters, or --all")
	case o.rate < 1 || o.rate > deadletter.MaxReplayRate:
		return command.Usagef("--rate must be 1 to %d", deadletter.MaxReplayRate)
	case o.limit < 0:
		return command.Usagef("--limit must be 0 (all) or more")
	case o.code == "" && codeLike.MatchString(o.reason):
		// Probably meant as --code; without that filter, more would be selected than intended.
		return command.Usagef("--reason %s looks like an error code: select by code with --code; --reason is for the audit entry", o.reason)
	}
	return nil
}

// codeLike matches the error codes of dead letters.
var codeLike = regexp.MustCompile(`^[A-Z][A-Z0-9]*(_[A-Z0-9]+)+$`)

// done describes the replay's action in the past tense.
func (o *replayOptions) done() string {
	if o.action == deadletter.ReplayDiscard {
		return "discarded"
	}
	return "retried"
}

// resolvedDeadLetter is one dead letter after it was resolved.
type resolvedDeadLetter struct{ deadLetterView }

func (v resolvedDeadLetter) WriteText(w io.Writer) {
	fmt.Fprintf(w, "Dead letter %s is %s.\n", v.ID, v.state())
	if v.OutboxID != nil && *v.Resolution == deadletter.Retried {
		fmt.Fprintf(w, "To see its email: gatewayctl email show %s\n", v.OutboxID)
	}
}

func replayOne(ctx context.Context, c *command.Invocation, s *store.Store, by audit.Operator, o *replayOptions, given string) (output.Result, error) {
	found, err := findDeadLetter(ctx, s, given)
	if err != nil {
		return nil, err
	}
	if o.action == deadletter.ReplayDiscard {
		did, err := s.DiscardDeadLetterAs(ctx, by, found)
		if err == nil && !did {
			err = fmt.Errorf("dead letter %s is already resolved: run `gatewayctl dlq show %s` for details", found.ID, found.ID)
		}
		if err != nil {
			return nil, err
		}
	} else {
		ttl, err := c.EmailTTL()
		if err != nil {
			return nil, err
		}
		err = s.RetryDeadLetterAs(ctx, by, found, ttl)
		var nothing *deadletter.NotReplayableError
		if errors.As(err, &nothing) {
			return nil, fmt.Errorf("dead letter %s cannot be retried: %s", found.ID, nothing.Reason)
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
	return resolvedDeadLetter{viewDeadLetter(after, nil, true)}, nil
}

func replayMany(ctx context.Context, c *command.Invocation, s *store.Store, by audit.Operator, o *replayOptions) (output.Result, error) {
	company, filter, err := o.filter(ctx, s)
	if err != nil {
		return nil, err
	}
	n, err := s.CountDeadLetters(ctx, company, filter)
	switch {
	case err != nil:
		return nil, err
	case n == 0:
		return replayView{Action: o.action, Status: deadletter.ReplayCompleted, Filter: filter, Rate: o.rate}, nil
	case !o.yes:
		return nil, fmt.Errorf("%s would be %s; nothing was changed: repeat the command with --yes",
			output.Plural(atMost(n, o.limit), "dead letter", "dead letters"), o.done())
	}
	id := uuidv7.New()
	made, err := s.CreateReplayAs(ctx, by, deadletter.NewReplay{
		ID: id, CompanyID: company, Action: o.action, Filter: filter, RequestID: "gatewayctl-" + id.String(), Most: o.limit, Rate: o.rate,
	})
	if err != nil || o.detach {
		return viewReplay(made), err
	}
	ended, err := follow(ctx, c, s, made)
	return replayEnd{viewReplay(ended)}, err
}

func atMost(n, limit int) int {
	if limit > 0 {
		return min(n, limit)
	}
	return n
}
