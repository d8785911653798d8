package ctl

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"email-gateway/api/internal/rotation"
	"email-gateway/shared/store"
	"email-gateway/shared/store/webhook"
)

func (c *control) encryption() *cobra.Command {
	cmd := group("encryption", "Rotate the keys that encrypt CPFs, CNPJs and files",
		`The first key of CPF_CNPJ_KEYS encrypts; every key decrypts. To replace it: put a new key in
front, restart every api, run rotate with the same CPF_CNPJ_KEYS and STORAGE_URL, and remove
the old key once status reports it as removable. Connect to the database as gateway_privacy
(`+"`migrate roles`"+`).`,
		`  gatewayctl encryption status
  gatewayctl encryption rotate --reason 'yearly'`)
	cmd.AddCommand(c.encryptionStatus(), c.encryptionRotate())
	return cmd
}

// encryptionView counts the values that each key has encrypted.
type encryptionView struct {
	Newest   string            `json:"newest"` // encrypts
	Keys     []encryptionKey   `json:"keys"`
	Places   rotation.KeyUsage `json:"places"`
	Resealed int               `json:"resealed"`
	rotated  bool
}

type encryptionKey struct {
	ID        string `json:"id"`
	InRing    bool   `json:"inRing"` // listed in CPF_CNPJ_KEYS
	Sealed    int    `json:"sealed"`
	Removable bool   `json:"removable"` // may be removed from CPF_CNPJ_KEYS
}

func (c *control) rotation(ctx context.Context, s *store.Store) (*rotation.Rotation, func(), error) {
	settings, bucket, err := c.openEncrypted(ctx)
	if err != nil {
		return nil, nil, err
	}
	p := c.progress()
	r := &rotation.Rotation{Store: s, Bucket: bucket, Ring: settings.Ring, Webhooks: webhook.New(s.DB())}
	r.Progress = func(what string, found, resealed int) {
		p.update(step{what: "Scanning", text: what + ", " + plurals(found, "value", "values") + ", " + thousands(resealed) + " re-encrypted"})
	}
	done := func() {
		p.end()
		_ = bucket.Close() // nothing is being written
	}
	return r, done, nil
}

func viewEncryption(r *rotation.Rotation, usage rotation.KeyUsage) encryptionView {
	v := encryptionView{Newest: r.Ring.Newest(), Keys: []encryptionKey{}, Places: usage}
	ids := r.Ring.IDs()
	for _, id := range ids {
		n := usage.Of(id)
		v.Keys = append(v.Keys, encryptionKey{ID: id, InRing: true, Sealed: n, Removable: n == 0 && id != v.Newest})
	}
	for _, id := range usage.Keys() {
		if !slices.Contains(ids, id) {
			v.Keys = append(v.Keys, encryptionKey{ID: id, Sealed: usage.Of(id)})
		}
	}
	return v
}

func (c *control) encryptionStatus() *cobra.Command {
	return &cobra.Command{
		Use: "status", Short: "Count the values that each key has encrypted, and show which keys are removable",
		Example: "  gatewayctl encryption status --json",
		Args:    exactArgs(),
		RunE: c.run(func(ctx context.Context, s *store.Store, _ []string) (answer, error) {
			r, done, err := c.rotation(ctx, s)
			if err != nil {
				return nil, err
			}
			defer done()
			usage, err := r.Count(ctx)
			if err != nil {
				return nil, err
			}
			return viewEncryption(r, usage), nil
		}),
	}
}

func (c *control) encryptionRotate() *cobra.Command {
	var reason string
	cmd := &cobra.Command{
		Use: "rotate --reason WHY", Short: "Re-encrypt everything with the newest key",
		Long: `Re-encrypts everything that older keys have encrypted with the first key of CPF_CNPJ_KEYS:
numbers in the tables (500 per transaction) and uploaded files. The gateway keeps running
meanwhile. If it is interrupted, run it again: it continues with what is left. Values that
cannot be decrypted are skipped and listed at the end. Finally it counts, as status does.`,
		Example: "  gatewayctl encryption rotate --reason 'yearly'",
		Args:    exactArgs(),
		RunE: c.run(func(ctx context.Context, s *store.Store, _ []string) (answer, error) {
			by, err := c.operatorWithReason(reason)
			if err != nil {
				return nil, err
			}
			r, done, err := c.rotation(ctx, s)
			if err != nil {
				return nil, err
			}
			defer done()
			resealed, err := r.Run(ctx)
			if resealed > 0 { // audit a partial rotation too
				recorded := s.RecordRotation(context.WithoutCancel(ctx), by, map[string]any{"newest": r.Ring.Newest(), "resealed": resealed, "whole": err == nil})
				err = errors.Join(err, recorded)
			}
			if err != nil {
				return nil, err
			}
			usage, err := r.Count(ctx)
			if err != nil {
				return nil, err
			}
			v := viewEncryption(r, usage)
			v.Resealed, v.rotated = resealed, true
			return v, nil
		}),
	}
	return auditReasonFlag(cmd, &reason, true)
}

func (v encryptionView) text(w io.Writer) {
	if v.rotated {
		fmt.Fprintf(w, "%s re-encrypted with key %s.\n\n", plurals(v.Resealed, "value was", "values were"), v.Newest)
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
		rows = append(rows, []string{k.ID, thousands(k.Sealed), state})
	}
	table(w, "", rows)
	if len(removable) > 0 {
		fmt.Fprintf(w, `
Nothing is encrypted with %s any more. Restart every api with %s in front, run this again to
confirm, and then remove the old key from CPF_CNPJ_KEYS. Keep it as long as older backups exist.
`, strings.Join(removable, ", "), v.Newest)
	}
}

// failure reports values that cannot be decrypted because their key is missing.
func (v encryptionView) failure() error {
	for _, k := range v.Keys {
		if !k.InRing {
			return fmt.Errorf("%s encrypted with key %s, which is not in CPF_CNPJ_KEYS", plurals(k.Sealed, "value is", "values are"), k.ID)
		}
	}
	if old := v.left(); v.rotated && old > 0 {
		return fmt.Errorf("%s encrypted with an old key meanwhile: restart every api with %s in front, and run this again", plurals(old, "value was", "values were"), v.Newest)
	}
	return nil
}

// left counts the values that are still encrypted with an old key of the ring.
func (v encryptionView) left() (n int) {
	for _, k := range v.Keys {
		if k.InRing && k.ID != v.Newest {
			n += k.Sealed
		}
	}
	return n
}
