package key

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"email-gateway/api/internal/apikey"
	"email-gateway/api/internal/ctl/command"
	"email-gateway/api/internal/ctl/operator"
	"email-gateway/api/internal/ctl/output"
	"email-gateway/shared/store"
	"email-gateway/shared/store/tenant"
)

// keyRotated is a key's successor, which is shown only once.
type keyRotated struct {
	keyCreated
	Replaces string    `json:"replaces"`
	Until    time.Time `json:"replacedUntil"`
}

// maxGrace limits how long both keys are valid. For longer periods, create a second key.
const maxGrace = 90 * 24 * time.Hour

func rotateCommand(c *command.Invocation) *cobra.Command {
	var reason string
	var grace time.Duration
	cmd := &cobra.Command{
		Use: "rotate KEYID", Short: "Create a key's successor and revoke the old key after a grace period",
		Long: `Creates a key with the same permissions and shows it once. Both keys are valid during the
grace period, so that programs can switch over; then the old key expires automatically.
Revoke it to end the grace period early.`,
		Example: "  gatewayctl key rotate 7qkz3w5hj2xn6b4c --grace 72h --reason 'yearly'",
		Args:    command.ExactArgs("KEYID"), ValidArgsFunction: completeKeys(c),
		RunE: operator.Run(c, func(ctx context.Context, s *store.Store, args []string) (output.Result, error) {
			if grace < 0 || grace > maxGrace {
				return nil, command.Usagef("--grace must be 0s to %s", maxGrace)
			}
			by, err := operator.Identity(c, reason)
			if err != nil {
				return nil, err
			}
			id := keyID(args[0])
			old, err := s.FindCaller(ctx, id)
			if err != nil && !errors.Is(err, store.ErrNotFound) {
				return nil, err
			}
			made, makeErr := apikey.New(old.Environment)
			if makeErr != nil {
				return nil, makeErr
			}
			var successor tenant.Successor
			if err == nil {
				successor, err = s.RotateAPIKey(ctx, by, id, made.ID, made.SecretSHA256(), grace)
			}
			if errors.Is(err, store.ErrNotFound) {
				return nil, errors.New("no active key has this id: run `gatewayctl key list --company COMPANY` to see a company's keys")
			}
			if err != nil {
				return nil, err
			}
			return keyRotated{
				keyCreated: keyCreated{Key: made.String(), APIKey: successor.APIKey, company: "the programs that use " + id}, Replaces: id, Until: successor.OldEnds,
			}, nil
		}),
	}
	cmd.Flags().DurationVar(&grace, "grace", 24*time.Hour, "how long the old key stays valid: a `DURATION` such as 72h")
	return operator.ReasonFlag(cmd, &reason, false)
}

func (v keyRotated) WriteText(w io.Writer) {
	v.keyCreated.WriteText(w)
	fmt.Fprintf(w, "\nKey %s is valid until %s.\n", v.Replaces, output.Timestamp(v.Until))
}
