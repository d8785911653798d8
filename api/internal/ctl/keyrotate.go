package ctl

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"email-gateway/api/internal/apikey"
	"email-gateway/shared/store"
)

// keyRotated is a key with its successor, which is shown this once.
type keyRotated struct {
	keyCreated
	Replaces string    `json:"replaces"`
	Until    time.Time `json:"replacedUntil"`
}

// maxGrace is the longest that two keys work beside each other: who needs longer has two
// keys.
const maxGrace = 90 * 24 * time.Hour

func (c *control) keyRotate() *cobra.Command {
	var reason string
	var grace time.Duration
	cmd := &cobra.Command{
		Use: "rotate KEYID", Short: "Make a key's successor, and shut the old one out after a while",
		Long: `Makes a key that may do what the old one may, and shows it, this once. Until the grace is
over both work, so that programs can change at their own time; then the old one is shut
out by itself. Revoke it to end that sooner.`,
		Example: "  gatewayctl key rotate 7qkz3w5hj2xn6b4c --grace 72h --reason 'yearly'",
		Args:    needs("KEYID"), ValidArgsFunction: c.completeKeys,
		RunE: c.run(func(ctx context.Context, s *store.Store, args []string) (answer, error) {
			if grace < 0 || grace > maxGrace {
				return nil, usagef("--grace must be 0s to %s", maxGrace)
			}
			by, err := c.who(reason)
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
			if err == nil {
				err = s.RotateAPIKey(ctx, by, id, made.ID, made.SecretSHA256(), grace)
			}
			if errors.Is(err, store.ErrNotFound) {
				return nil, errors.New("there is no key of this id that works: `gatewayctl key list --company COMPANY` shows those of a company")
			}
			if err != nil {
				return nil, err
			}
			if old, err = s.FindCaller(ctx, id); err != nil {
				return nil, err
			}
			stored, err := s.FindCaller(ctx, made.ID)
			if err != nil {
				return nil, err
			}
			return keyRotated{
				keyCreated: keyCreated{Key: made.String(), APIKey: stored.APIKey, company: "the programs that use " + id}, Replaces: id, Until: old.Ends(),
			}, nil
		}),
	}
	cmd.Flags().DurationVar(&grace, "grace", 24*time.Hour, "how long the old one works still: `DURATION`, such as 72h")
	return because(cmd, &reason, false)
}

func (v keyRotated) text(w io.Writer) {
	v.keyCreated.text(w)
	fmt.Fprintf(w, "\nKey %s works until %s.\n", v.Replaces, stamp(v.Until))
}
