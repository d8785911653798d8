// Package encryption implements gatewayctl encryption: operators rotate the keys that encrypt
// tax ids and files.
package encryption

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"email-gateway/api/internal/ctl/command"
	"email-gateway/api/internal/ctl/operator"
	"email-gateway/api/internal/ctl/output"
	"email-gateway/api/internal/rotation"
	"email-gateway/shared/keyring"
	"email-gateway/shared/store"
	"email-gateway/shared/store/webhook"
)

// Command returns the command `gatewayctl encryption` with its subcommands.
func Command(c *command.Invocation) *cobra.Command {
	cmd := command.Group("encryption", "Rotate the keys that encrypt CPFs, CNPJs and files",
		`The first key of CPF_CNPJ_KEYS encrypts; every key decrypts. Workers need the keys too, for
attachments and webhooks. To replace the first key:

  1. Append a new key behind the old one on every api and worker, and restart them.
  2. Put the new key in front on every api, and restart them.
  3. Run rotate with the CPF_CNPJ_KEYS and STORAGE_URL of the apis.
  4. Once status reports the old key as removable, remove it from every api and worker.

Without step 1, other apis and the workers cannot decrypt what the new key has encrypted: an
email with an attachment then waits until the worker has the key, and expires at its deadline.
Connect to the database as gateway_privacy (`+"`migrate roles`"+`).`,
		`  gatewayctl encryption status
  gatewayctl encryption rotate --reason 'yearly'`)
	cmd.AddCommand(statusCommand(c), rotateCommand(c))
	return cmd
}

// encryptionView counts the values that each key has encrypted.
type encryptionView struct {
	Newest      string            `json:"newest"` // encrypts
	Keys        []encryptionKey   `json:"keys"`
	Places      rotation.KeyUsage `json:"places"`
	Reencrypted int               `json:"resealed"`
	rotated     bool
	damaged     error // of values that cannot be decrypted
}

type encryptionKey struct {
	ID        string `json:"id"`
	InRing    bool   `json:"inRing"` // listed in CPF_CNPJ_KEYS
	Encrypted int    `json:"sealed"`
	Removable bool   `json:"removable"` // may be removed from CPF_CNPJ_KEYS
}

func openRotation(ctx context.Context, c *command.Invocation, s *store.Store) (*rotation.Rotation, func(), error) {
	settings, bucket, err := Open(ctx, c, s)
	if err != nil {
		return nil, nil, err
	}
	p := c.Progress()
	r := &rotation.Rotation{Store: s, Bucket: bucket, Ring: settings.Ring, Webhooks: webhook.New(s.DB())}
	r.Progress = func(what string, found, changed int) {
		p.Update(output.Step{What: "Scanning", Text: what + ", " + output.Count(found, "value", "values") + ", " + output.Thousands(changed) + " re-encrypted"})
	}
	done := func() {
		p.End()
		_ = bucket.Close() // nothing is being written
	}
	return r, done, nil
}

func viewEncryption(r *rotation.Rotation, usage rotation.KeyUsage) encryptionView {
	v := encryptionView{Newest: r.Ring.Newest(), Keys: []encryptionKey{}, Places: usage}
	ids := r.Ring.IDs()
	for _, id := range ids {
		n := usage.Of(id)
		v.Keys = append(v.Keys, encryptionKey{ID: id, InRing: true, Encrypted: n, Removable: n == 0 && id != v.Newest})
	}
	for _, id := range usage.Keys() {
		if !slices.Contains(ids, id) {
			v.Keys = append(v.Keys, encryptionKey{ID: id, Encrypted: usage.Of(id)})
		}
	}
	return v
}

func statusCommand(c *command.Invocation) *cobra.Command {
	return &cobra.Command{
		Use: "status", Short: "Count the values that each key has encrypted, and show which keys are removable",
		Example: "  gatewayctl encryption status --json",
		Args:    command.ExactArgs(),
		RunE: operator.Run(c, func(ctx context.Context, s *store.Store, _ []string) (output.Result, error) {
			r, done, err := openRotation(ctx, c, s)
			if err != nil {
				return nil, err
			}
			defer done()
			usage, err := r.Count(ctx)
			damaged, err := undecryptable(err)
			if err != nil {
				return nil, err
			}
			v := viewEncryption(r, usage)
			v.damaged = damaged
			return v, nil
		}),
	}
}

func rotateCommand(c *command.Invocation) *cobra.Command {
	var reason string
	cmd := &cobra.Command{
		Use: "rotate --reason WHY", Short: "Re-encrypt everything with the newest key",
		Long: `Re-encrypts everything that older keys have encrypted with the first key of CPF_CNPJ_KEYS:
numbers in the tables (500 per transaction) and uploaded files. The gateway keeps running
meanwhile. If it is interrupted, run it again: it continues with what is left. Values that
cannot be decrypted are skipped and listed at the end. Finally it counts, as status does.`,
		Example: "  gatewayctl encryption rotate --reason 'yearly'",
		Args:    command.ExactArgs(),
		RunE: operator.Run(c, func(ctx context.Context, s *store.Store, _ []string) (output.Result, error) {
			by, err := operator.IdentityWithReason(c, reason)
			if err != nil {
				return nil, err
			}
			r, done, err := openRotation(ctx, c, s)
			if err != nil {
				return nil, err
			}
			defer done()
			changed, err := r.Run(ctx)
			damaged, err := undecryptable(err)
			if changed > 0 { // audit a partial rotation too
				whole := err == nil && damaged == nil
				recorded := s.RecordRotation(context.WithoutCancel(ctx), by, map[string]any{"newest": r.Ring.Newest(), "resealed": changed, "whole": whole})
				err = errors.Join(err, recorded)
			}
			var usage rotation.KeyUsage
			if err == nil {
				var uncounted error
				usage, err = r.Count(ctx)
				if uncounted, err = undecryptable(err); damaged == nil {
					damaged = uncounted // of a value that was damaged after Run; otherwise Run has listed more values than Count
				}
			}
			switch {
			case err != nil && changed > 0:
				return nil, fmt.Errorf("%w: %w", operator.ErrUnfinished, errors.Join(err, damaged))
			case err != nil:
				return nil, errors.Join(err, damaged)
			}
			v := viewEncryption(r, usage)
			v.Reencrypted, v.rotated, v.damaged = changed, true, damaged
			return v, nil
		}),
	}
	return operator.ReasonFlag(cmd, &reason, true)
}

func (v encryptionView) WriteText(w io.Writer) {
	if v.rotated {
		fmt.Fprintf(w, "%s re-encrypted with key %s.\n\n", output.Count(v.Reencrypted, "value was", "values were"), v.Newest)
	}
	rows := [][]string{{"KEY", "ENCRYPTED", "STATE"}}
	var removable []string
	for _, k := range v.Keys {
		state := "old"
		switch {
		case !k.InRing:
			state = "not in CPF_CNPJ_KEYS: its values cannot be decrypted"
		case k.ID == v.Newest:
			state = "current"
		case k.Removable:
			state = "removable"
			removable = append(removable, k.ID)
		}
		rows = append(rows, []string{k.ID, output.Thousands(k.Encrypted), state})
	}
	output.Table(w, "", rows)
	if len(removable) > 0 {
		fmt.Fprintf(w, `
Nothing is encrypted with %s any more. Restart every api with %s in front, run this again to
confirm, and then remove the old key from CPF_CNPJ_KEYS of every api and worker. Keep a copy of it
as long as older backups exist.
`, strings.Join(removable, ", "), v.Newest)
	}
}

// undecryptable separates an error that lists damaged values, which does not prevent the count of the others, from any other.
func undecryptable(err error) (damaged, other error) {
	if errors.Is(err, keyring.ErrUndecryptable) {
		return err, nil
	}
	return nil, err
}

// Failure reports values that cannot be decrypted because they are damaged or because their key is missing.
func (v encryptionView) Failure() error { return errors.Join(v.damaged, v.left()) }

// left reports values that still need a key other than the newest.
func (v encryptionView) left() error {
	for _, k := range v.Keys {
		if !k.InRing {
			return fmt.Errorf("%s encrypted with key %s, which is not in CPF_CNPJ_KEYS", output.Count(k.Encrypted, "value is", "values are"), k.ID)
		}
	}
	if old := v.old(); v.rotated && old > 0 {
		return fmt.Errorf("%s encrypted with an old key meanwhile: restart every api with %s in front, and run this again", output.Count(old, "value was", "values were"), v.Newest)
	}
	return nil
}

// old counts the values that are still encrypted with an old key of the ring.
func (v encryptionView) old() (n int) {
	for _, k := range v.Keys {
		if k.InRing && k.ID != v.Newest {
			n += k.Encrypted
		}
	}
	return n
}
