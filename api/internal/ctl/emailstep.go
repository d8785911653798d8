package ctl

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"email-gateway/api/internal/client"
	"email-gateway/shared/email"
	"email-gateway/shared/store"
)

func (c *control) emailCancel() *cobra.Command {
	var reason string
	cmd := &cobra.Command{
		Use: "cancel ID", Short: "Withdraw an email that no worker has taken up",
		Long: `Withdraws an email as long as no worker has taken it up (PENDING, ENQUEUED,
RETRY_SCHEDULED). Cancelling a cancelled one changes nothing. An operator has to give a
--reason.
` + whoLong,
		Example: "  gatewayctl email cancel 01a1fe26-7c3d-7e4f-8a5b-6c7d8e9f0a1b --reason 'wrong amount'",
		Args:    needs("ID"), ValidArgsFunction: c.completeEmails,
	}
	because(cmd, &reason, false)
	return c.either(cmd, either{
		operator: func(ctx context.Context, s *store.Store, args []string) (answer, error) {
			by, err := c.whoAndWhy(reason)
			if err != nil {
				return nil, err
			}
			found, err := findEmail(ctx, s, args[0])
			if err != nil {
				return nil, err
			}
			moved, err := s.CancelEmail(ctx, by, found.CompanyID, found.ID)
			if moved.Status == "" {
				moved.Status = found.Status // its row is purged
			}
			switch {
			case err != nil:
				return nil, err
			case !moved.Applied && moved.Status != email.Cancelled:
				return nil, fmt.Errorf("it is too late: the email is %s, and `gatewayctl email explain %s` tells why", moved.Status, found.ID)
			}
			return showMoved(ctx, s, found, "cancelled")
		},
		tenant: func(ctx context.Context, api *client.Client, args []string) (answer, error) {
			return stepEmail(ctx, api, args[0], "cancel", "cancelled")
		},
	})
}

func (c *control) emailRetry() *cobra.Command {
	var reason string
	cmd := &cobra.Command{
		Use: "retry ID", Short: "Send an email again that was given up",
		Long: `Gives an email that FAILED, EXPIRED or was CANCELLED all its tries again, and a new
deadline: for an operator EMAIL_TTL away, which is 24h if it is not set here. If the outcome
of an earlier try is not known, the email says possibleDuplicate from then on.
` + whoLong,
		Example: "  gatewayctl email retry 01a1fe26-7c3d-7e4f-8a5b-6c7d8e9f0a1b --reason 'identity is verified now'",
		Args:    needs("ID"), ValidArgsFunction: c.completeEmails,
	}
	because(cmd, &reason, false)
	return c.either(cmd, either{
		operator: func(ctx context.Context, s *store.Store, args []string) (answer, error) {
			by, err := c.who(reason)
			if err != nil {
				return nil, err
			}
			ttl, err := c.ttl()
			if err != nil {
				return nil, err
			}
			found, err := findEmail(ctx, s, args[0])
			if err != nil {
				return nil, err
			}
			moved, err := s.ReplayEmail(ctx, by, found.CompanyID, found.ID, ttl)
			switch {
			case err != nil:
				return nil, err
			case !moved.Applied && (moved.Status == "" || moved.Erased):
				return nil, fmt.Errorf("email %s cannot be sent again: what it said is not kept any more", found.ID)
			case !moved.Applied && moved.Replaced:
				return nil, fmt.Errorf("email %s cannot be sent again: another one of its aggregate and event type has taken its place", found.ID)
			case !moved.Applied:
				return nil, fmt.Errorf("email %s cannot be sent again: it is %s, and only FAILED, EXPIRED and CANCELLED ones can, "+
					"unless their whole mailing was cancelled", found.ID, moved.Status)
			}
			if err := s.Wake(ctx); err != nil {
				return nil, err
			}
			return showMoved(ctx, s, found, "set going again")
		},
		tenant: func(ctx context.Context, api *client.Client, args []string) (answer, error) {
			return stepEmail(ctx, api, args[0], "retry", "set going again")
		},
	})
}

// movedEmail is an email after a step.
type movedEmail struct {
	emailView
	done string
}

func (v movedEmail) text(w io.Writer) {
	fmt.Fprintf(w, "Email %s was %s and is %s now.\n", v.ID, v.done, v.Status)
	if !v.Status.Final() {
		fmt.Fprintf(w, "To see what becomes of it: gatewayctl email show %s\n", v.ID)
	}
}

func showMoved(ctx context.Context, s *store.Store, before store.Situation, done string) (answer, error) {
	after, err := s.FindSituation(ctx, before.ID)
	if err != nil {
		return nil, err
	}
	events, err := s.Timeline(ctx, before.ID)
	if err != nil {
		return nil, err
	}
	view, err := viewEmail(after, events, email.MaxAttempts, false)
	return movedEmail{view, done}, err
}

func stepEmail(ctx context.Context, api *client.Client, given, step, done string) (answer, error) {
	id, err := parseEmail(given)
	if err != nil {
		return nil, err
	}
	v := movedEmail{done: done}
	err = api.Post(ctx, emailPath+"/"+id.String()+"/"+step, nil, &v.emailView, "")
	return v, err
}
