// Package installation implements gatewayctl installation: an operator makes a copy of a database an installation of its own.
package installation

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"email-gateway/api/internal/ctl/command"
	"email-gateway/api/internal/ctl/operator"
	"email-gateway/api/internal/ctl/output"
	"email-gateway/shared/store"
	installationstore "email-gateway/shared/store/installation"
)

// Command returns the command `gatewayctl installation` with its subcommands.
func Command(c *command.Invocation) *cobra.Command {
	cmd := command.Group("installation", "Make a copy of a database an installation of its own",
		`An installation is one database with its file storage, Redis, RabbitMQ and queue of SES events.
A copy of the database, such as one restored for a drill or a clone for a test environment,
has the id of the original: its programs would send the waiting emails again, deliver webhooks,
and delete files of the original.`,
		"  gatewayctl installation detach --reason 'restore drill'")
	cmd.AddCommand(detachCommand(c))
	return cmd
}

func detachCommand(c *command.Invocation) *cobra.Command {
	var reason string
	cmd := &cobra.Command{
		Use: "detach --reason REASON", Short: "Make this copy of a database an installation that sends nothing",
		Long: `Run this on a copy of a database before any program starts with it. In one transaction, the copy
gets an id of its own, so that its programs refuse the storage, the Redis and the RabbitMQ of
the original; all sending is paused; and every webhook endpoint is disabled.

It is refused while a dispatcher or worker uses the database, or has reported within 15 s. Stop
the copy's apis too: one that runs keeps the id of the original. Repeated before the copy has
sent anything or marked a storage, it changes nothing and prints the first result.
Never run it on the original: sending would stop, and its programs would refuse their storage,
Redis and RabbitMQ.`,
		Example: "  gatewayctl installation detach --reason 'restore drill'",
		Args:    command.ExactArgs(),
		RunE: operator.Run(c, func(ctx context.Context, s *store.Store, _ []string) (output.Result, error) {
			by, err := operator.IdentityWithReason(c, reason)
			if err != nil {
				return nil, err
			}
			done, err := installationstore.New(s.DB()).Detach(ctx, by)
			if errors.Is(err, installationstore.ErrRunning) {
				return nil, errors.New("a dispatcher or worker uses this database, or has reported within 15 s (nothing was changed): " +
					"check that DATABASE_URL names the copy, stop the programs, its apis too, and repeat the command after 15 s")
			}
			return detached{done}, err
		}),
	}
	return operator.ReasonFlag(cmd, &reason, true)
}

// detached is the result of installation detach.
type detached struct{ installationstore.Detached }

func (v detached) WriteText(w io.Writer) {
	if v.Repeated {
		fmt.Fprintln(w, "It was detached before and has sent nothing since: nothing was changed. This is the first result.")
	}
	fmt.Fprintf(w, `This database is installation %s now; the original is %s.
All sending is paused, and %s disabled.

Before its programs start, give them a STORAGE_URL, REDIS_URL, RABBITMQ_URL and SES_EVENTS_QUEUE that the
original does not use. To send: cancel what must not be sent again, then gatewayctl lane resume --all
`, v.ID, v.Before, output.Plural(v.Webhooks, "webhook endpoint was", "webhook endpoints were"))
}
