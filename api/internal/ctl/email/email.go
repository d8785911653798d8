// Package email implements gatewayctl email: operators and tenants find, explain, cancel and
// retry emails, and tenants send them.
package email

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"email-gateway/api/internal/ctl/command"
	"email-gateway/shared/store"
	"email-gateway/shared/store/emails"
)

// Command returns the command `gatewayctl email` with its subcommands.
func Command(c *command.Invocation) *cobra.Command {
	cmd := command.Group("email", "Send, find and manage emails, and explain why one is not sent yet",
		`An email is identified by the outboxId of its 202 response. An operator can look up emails of
any company, a tenant its own.`,
		`  gatewayctl email send --to maria@cliente.example --external-id CUST-42 --subject 'Olá' --html-file ola.html
  gatewayctl email show 01a1fe26-7c3d-7e4f-8a5b-6c7d8e9f0a1b
  gatewayctl email explain 01a1fe26-7c3d-7e4f-8a5b-6c7d8e9f0a1b`)
	cmd.AddCommand(sendCommand(c), sendBatchCommand(c), listCommand(c), showCommand(c), explainCommand(c), cancelCommand(c), retryCommand(c))
	return cmd
}

// emailPath is the api's route of emails.
const emailPath = "/v1/email"

// parseEmail parses the id of an email.
func parseEmail(given string) (uuid.UUID, error) {
	id, err := uuid.Parse(given)
	if err != nil {
		return uuid.Nil, command.Usagef("%q is not an email id: give the outboxId of the 202 response", given)
	}
	return id, nil
}

// findEmail finds any company's email by its id.
func findEmail(ctx context.Context, s *store.Store, given string) (emails.Diagnosis, error) {
	id, err := parseEmail(given)
	if err != nil {
		return emails.Diagnosis{}, err
	}
	found, err := s.FindEmailDiagnosis(ctx, id)
	if errors.Is(err, store.ErrNotFound) {
		return emails.Diagnosis{}, fmt.Errorf("email %s not found: check that it is the outboxId of a 202 response and that DATABASE_URL is the right database", id)
	}
	return found, err
}
