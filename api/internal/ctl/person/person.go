// Package person implements gatewayctl person: operators export and erase the data of a person.
package person

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"email-gateway/api/internal/ctl/command"
	"email-gateway/api/internal/ctl/encryption"
	"email-gateway/api/internal/ctl/operator"
	"email-gateway/api/internal/ctl/output"
	"email-gateway/api/internal/privacy"
	"email-gateway/shared/email"
	"email-gateway/shared/mailbox"
	"email-gateway/shared/store"
	personstore "email-gateway/shared/store/person"
)

// Command returns the command `gatewayctl person` with its subcommands.
func Command(c *command.Invocation) *cobra.Command {
	cmd := command.Group("person", "Export or erase what a company holds about a person",
		`Searches all of a company's tables and uploaded files for a person, by address or by CPF or
CNPJ. From there it follows the rows to the person's other ids and addresses, including former
ones. An address, an external id, or in a search by address a CPF or CNPJ, that other people
share is reported and not followed: --email of one contact of a company does not reach the
others, --cpf-cnpj with the company's CNPJ reaches all of them.

It needs settings of the api, because numbers and files are encrypted: CPF_CNPJ_KEYS,
CPF_CNPJ_HASH_KEY if the api sets it, and STORAGE_URL. Connect to the database as
gateway_privacy (`+"`migrate roles`"+`): gateway_operator lacks the permissions.

The text of emails to others is not searched.`,
		`  gatewayctl person export --company Acme --cpf-cnpj 529.982.247-25 --out maria.json
  gatewayctl person erase --company Acme --email maria@cliente.example --reason 'request of 2 March' --yes`)
	cmd.AddCommand(exportCommand(c), eraseCommand(c))
	return cmd
}

// personFlags identify the person.
type personFlags struct{ company, taxID, address string }

func addFlags(c *command.Invocation, cmd *cobra.Command, f *personFlags) *cobra.Command {
	cmd.Flags().StringVar(&f.taxID, "cpf-cnpj", "", "the person's CPF or CNPJ, a `NUMBER`; - reads it from standard input")
	cmd.Flags().StringVar(&f.address, "email", "", "the person's `ADDRESS`; - reads it from standard input")
	return operator.CompanyFlag(c, cmd, &f.company)
}

// query validates the flags. With -, the value does not appear in the shell's history.
func (f *personFlags) query(stdin io.Reader) (privacy.Query, error) {
	if (f.taxID == "") == (f.address == "") {
		return privacy.Query{}, command.Usagef("give exactly one of --cpf-cnpj and --email")
	}
	given := &f.taxID
	if f.address != "" {
		given = &f.address
	}
	if *given == "-" {
		if _, err := fmt.Fscanln(stdin, given); err != nil {
			return privacy.Query{}, command.Usagef("standard input must be one line: a CPF, a CNPJ or an address")
		}
	}
	if f.address != "" {
		address, err := mailbox.ASCII(f.address)
		if err != nil {
			return privacy.Query{}, command.Usagef("--email %v", err)
		}
		return privacy.Query{Address: address}, nil
	}
	bare, err := email.ParseTaxID(f.taxID)
	if err != nil {
		return privacy.Query{}, command.Usagef("--cpf-cnpj %v", err)
	}
	return privacy.Query{TaxID: bare}, nil
}

// archive sets q's company and returns where its people are searched; the caller calls
// done.
func archive(ctx context.Context, c *command.Invocation, s *store.Store, name string, q *privacy.Query) (a *privacy.Archive, done func(), err error) {
	company, err := operator.FindCompany(ctx, s, name)
	if err != nil {
		return nil, nil, err
	}
	q.CompanyID = company.ID
	settings, bucket, err := encryption.Open(ctx, c, s)
	if err != nil {
		return nil, nil, err
	}
	p := c.Progress()
	a = &privacy.Archive{Store: s, People: personstore.New(s.DB()), Bucket: bucket, Ring: settings.Ring, HashKey: settings.HashKey}
	a.Progress = func(what string, found int) {
		p.Update(output.Step{What: "Searching", Text: what + ", " + output.Count(found, "row", "rows") + " so far"})
	}
	done = func() {
		p.End()
		_ = bucket.Close() // read only
	}
	return a, done, nil
}

// adviseKeys explains what to do if the keys are not those of the api.
func adviseKeys(err error) error {
	if errors.Is(err, privacy.ErrForeignKeys) {
		return fmt.Errorf("%w: use the api's keys; nothing was changed", err)
	}
	return err
}
