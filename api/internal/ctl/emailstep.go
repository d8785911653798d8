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
		Use: "cancel ID", Short: "Cancel an email that no worker is processing",
		Long: `Cancels an email that no worker is processing yet (PENDING, ENQUEUED, RETRY_SCHEDULED).
Cancelling a cancelled email changes nothing. Operators must give a --reason.
` + accessHelp,
		Example: "  gatewayctl email cancel 01a1fe26-7c3d-7e4f-8a5b-6c7d8e9f0a1b --reason 'wrong amount'",
		Args:    exactArgs("ID"), ValidArgsFunction: c.completeEmails(),
	}
	auditReasonFlag(cmd, &reason, false)
	return c.operatorOrTenant(cmd, operatorOrTenant{
		operator: func(ctx context.Context, s *store.Store, args []string) (answer, error) {
			by, err := c.operatorWithReason(reason)
			if err != nil {
				return nil, err
			}
			found, err := findEmail(ctx, s, args[0])
			if err != nil {
				return nil, err
			}
			moved, err := s.CancelEmail(ctx, by, found.CompanyID, found.ID)
			if moved.Status == "" {
				moved.Status = found.Status // the outbox row is purged
			}
			switch {
			case err != nil:
				return nil, err
			case !moved.Applied && moved.Status != email.Cancelled:
				return nil, fmt.Errorf("the email cannot be cancelled: it is %s; run `gatewayctl email explain %s` for details", moved.Status, found.ID)
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
		Use: "retry ID", Short: "Retry an email that FAILED, EXPIRED or was CANCELLED",
		Long: `Gives an email that FAILED, EXPIRED or was CANCELLED all its tries again and a new deadline:
for operators EMAIL_TTL from now (24h if it is not set here). If the outcome of an earlier
try is unknown, the email is marked possibleDuplicate from then on.
` + accessHelp,
		Example: "  gatewayctl email retry 01a1fe26-7c3d-7e4f-8a5b-6c7d8e9f0a1b --reason 'identity is verified now'",
		Args:    exactArgs("ID"), ValidArgsFunction: c.completeEmails(),
	}
	auditReasonFlag(cmd, &reason, false)
	return c.operatorOrTenant(cmd, operatorOrTenant{
		operator: func(ctx context.Context, s *store.Store, args []string) (answer, error) {
			by, err := c.operatorIdentity(reason)
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
				return nil, fmt.Errorf("email %s cannot be retried: its content has been deleted", found.ID)
			case !moved.Applied && moved.Replaced:
				return nil, fmt.Errorf("email %s cannot be retried: another email of the same aggregate and event type replaced it", found.ID)
			case !moved.Applied:
				return nil, fmt.Errorf("email %s cannot be retried: it is %s; only FAILED, EXPIRED and CANCELLED emails can be, "+
					"unless their whole mailing was cancelled", found.ID, moved.Status)
			}
			if err := s.Wake(ctx); err != nil {
				return nil, err
			}
			return showMoved(ctx, s, found, "scheduled again")
		},
		tenant: func(ctx context.Context, api *client.Client, args []string) (answer, error) {
			return stepEmail(ctx, api, args[0], "retry", "scheduled again")
		},
	})
}

// movedEmail is an email after it was cancelled or retried.
type movedEmail struct {
	emailView
	done string
}

func (v movedEmail) text(w io.Writer) {
	fmt.Fprintf(w, "Email %s was %s and is %s now.\n", v.ID, v.done, v.Status)
	if !v.Status.Final() {
		fmt.Fprintf(w, "To follow it: gatewayctl email show %s\n", v.ID)
	}
}

func showMoved(ctx context.Context, s *store.Store, before store.EmailDiagnosis, done string) (answer, error) {
	after, err := s.FindEmailDiagnosis(ctx, before.ID)
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
