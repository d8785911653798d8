// Package mailing implements gatewayctl mailing: tenants upload mailings, watch and control
// them.
package mailing

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"email-gateway/api/internal/client"
	"email-gateway/api/internal/ctl/command"
)

// mailingPath is the api's route of mailings.
const mailingPath = "/v1/mailings"

// Command returns the command `gatewayctl mailing` with its subcommands.
func Command(c *command.Invocation) *cobra.Command {
	cmd := command.Group("mailing", "Send an email to every address in a CSV file, and control the mailing",
		`A mailing sends one email to every address in a CSV file. These commands call the HTTP API as
the tenant whose key API_KEY is; the key needs the scopes mailings:write and mailings:read.
Operators pause a mailing of any company with gatewayctl lane pause.`,
		`  gatewayctl mailing create --file clientes.csv --subject 'Olá, {{nome}}' --html-file natal.html --watch
  gatewayctl mailing show 01a1fe26-7c3d-7e4f-8a5b-6c7d8e9f0a1b
  gatewayctl mailing pause 01a1fe26-7c3d-7e4f-8a5b-6c7d8e9f0a1b`)
	cmd.AddCommand(createCommand(c), listCommand(c), showCommand(c), watchCommand(c), entriesCommand(c), rowsCommand(c), verdictsCommand(c))
	cmd.AddCommand(controlCommands(c)...)
	return cmd
}

// parseMailing parses the id of a mailing.
func parseMailing(given string) (uuid.UUID, error) {
	id, err := uuid.Parse(given)
	if err != nil {
		return uuid.Nil, command.Usagef("%q is not a mailing id: give the mailingId of the 202 response, or run `gatewayctl mailing list`", given)
	}
	return id, nil
}

func findMailing(ctx context.Context, api *client.Client, id uuid.UUID) (mailingView, error) {
	v := mailingView{now: time.Now()}
	err := api.Get(ctx, mailingPath+"/"+id.String(), nil, &v)
	return v, err
}
