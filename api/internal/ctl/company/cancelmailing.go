package company

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"email-gateway/api/internal/ctl/command"
	"email-gateway/api/internal/ctl/operator"
	"email-gateway/api/internal/ctl/output"
	"email-gateway/shared/store"
	"email-gateway/shared/store/mailing"
)

func cancelMailingCommand(c *command.Invocation) *cobra.Command {
	var reason string
	cmd := &cobra.Command{
		Use: "cancel-mailing ID --reason WHY", Short: "Cancel a mailing of any company permanently",
		Long: `Cancels a mailing, also of a suspended company: no further email is sent, and waiting emails
become CANCELLED. Emails that SES has accepted are not recalled. This cannot be undone. A
mailing that was paused or has failed, and is not continued, keeps its data until then:
doctor lists them.`,
		Example: "  gatewayctl company cancel-mailing 01a1fe26-7c3d-7e4f-8a5b-6c7d8e9f0a1b --reason 'it has left'",
		Args:    command.ExactArgs("ID"),
		RunE: operator.Run(c, func(ctx context.Context, s *store.Store, args []string) (output.Result, error) {
			id, err := uuid.Parse(args[0])
			if err != nil {
				return nil, command.Usagef("%q is not a mailing id", args[0])
			}
			by, err := operator.IdentityWithReason(c, reason)
			if err != nil {
				return nil, err
			}
			cancelled, err := s.CancelMailingAs(ctx, by, id)
			if errors.Is(err, store.ErrNotFound) {
				return nil, fmt.Errorf("mailing %s not found: check that DATABASE_URL is the right database", id)
			}
			return mailingCancelled{MailingID: cancelled.ID, CompanyID: cancelled.CompanyID, Status: cancelled.Status}, err
		}),
	}
	return operator.ReasonFlag(cmd, &reason, true)
}

// mailingCancelled is a mailing that an operator has cancelled.
type mailingCancelled struct {
	MailingID uuid.UUID      `json:"mailingId"`
	CompanyID uuid.UUID      `json:"companyId"`
	Status    mailing.Status `json:"status"`
}

func (v mailingCancelled) WriteText(w io.Writer) {
	fmt.Fprintf(w, "Mailing %s was cancelled. The dispatcher cancels the emails that wait.\n", v.MailingID)
}
