package person

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"email-gateway/api/internal/ctl/command"
	"email-gateway/api/internal/ctl/operator"
	"email-gateway/api/internal/ctl/output"
	"email-gateway/api/internal/privacy"
	"email-gateway/shared/store"
)

// eraseTimeout limits the wait for emails that are being sent: longer than a worker's lease
// of 60 s.
const eraseTimeout = 90 * time.Second

// taskTimeout limits the wait for a dispatcher, which looks every second, to remove tasks from Redis.
const taskTimeout = 15 * time.Second

func eraseCommand(c *command.Invocation) *cobra.Command {
	var f personFlags
	var reason string
	o := privacy.Order{}
	var yes bool
	cmd := &cobra.Command{
		Use: "erase --company COMPANY (--cpf-cnpj NUMBER | --email ADDRESS) --reason WHY", Short: "Erase a person from a company's tables and files",
		Long: `Erases a person from everything that the company stores. Recipients and dead letters are
erased. Emails, logs, timelines and mailing entries keep their status but no personal data, so
that a mailing's numbers stay correct. Unsent emails become CANCELLED. Uploaded files that
name the person are deleted. Suppressions of the person's addresses are kept, because they
prevent further emails; --forget-suppressions deletes them too.

It prints a receipt with the number of rows by address and table. The addresses are stored
until the erasure is complete, and not afterwards.

It commits in small steps. If it is interrupted, run it again: it erases what is left, and the
receipt has the rows of both runs. The numbers above the receipt are those of the last run.
It waits up to 90 s for emails that a worker is sending; if some are left, the exit code is 1
and it must be run again. The exit code is also 1 if no dispatcher has checked Redis for the
emails' tasks within 15 s. An erasure cannot be undone.`,
		Example: "  gatewayctl person erase --company Acme --cpf-cnpj 529.982.247-25 --reason 'request of 2 March' --yes",
		Args:    command.ExactArgs(),
		RunE: operator.Run(c, func(ctx context.Context, s *store.Store, _ []string) (output.Result, error) {
			q, err := f.query(c.Stdin)
			if err != nil {
				return nil, err
			}
			if o.By, err = operator.IdentityWithReason(c, reason); err != nil {
				return nil, err
			}
			a, done, err := archive(ctx, c, s, f.company, &q)
			if err != nil {
				return nil, err
			}
			defer done()
			o.Query, o.Timeout, o.TaskTimeout = q, eraseTimeout, taskTimeout
			if !yes {
				preview, err := a.Preview(ctx, q)
				if err != nil {
					return nil, adviseKeys(err)
				}
				return nil, unconfirmed(preview)
			}
			did, err := a.Erase(ctx, o)
			switch {
			case errors.Is(err, privacy.ErrForeignKeys):
				return nil, adviseKeys(err)
			case errors.Is(err, privacy.ErrInterrupted):
				return nil, fmt.Errorf("%w: %w", operator.ErrUnfinished, err)
			case err != nil:
				return nil, err
			}
			return erased{did}, nil
		}),
	}
	cmd.Flags().BoolVar(&yes, "yes", false, "confirm; without it, addresses are listed and rows counted")
	cmd.Flags().BoolVar(&o.Forget, "forget-suppressions", false, "also delete suppressions of the person's addresses: they can be emailed again")
	return addFlags(c, operator.ReasonFlag(cmd, &reason, true), &f)
}
