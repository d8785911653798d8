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
)

func (c *control) encryption() *cobra.Command {
	cmd := group("encryption", "Change the keys that CPFs, CNPJs and files are encrypted with",
		`The first key of CPF_CNPJ_KEYS encrypts, all of them decrypt. To change it: put a new one in
front, restart every api, rotate here with the same CPF_CNPJ_KEYS and STORAGE_URL, and take
the old one out when status says that it may go. Use the database as gateway_privacy
(`+"`migrate roles`"+`).`,
		`  gatewayctl encryption status
  gatewayctl encryption rotate --reason 'yearly'`)
	cmd.AddCommand(c.encryptionStatus(), c.encryptionRotate())
	return cmd
}

// encryptionView is what each key has sealed.
type encryptionView struct {
	Newest   string          `json:"newest"` // encrypts
	Keys     []encryptionKey `json:"keys"`
	Places   rotation.Census `json:"places"`
	Resealed int             `json:"resealed"`
	rotated  bool
}

type encryptionKey struct {
	ID        string `json:"id"`
	InRing    bool   `json:"inRing"` // CPF_CNPJ_KEYS holds it
	Sealed    int    `json:"sealed"`
	Removable bool   `json:"removable"` // it may be taken out of CPF_CNPJ_KEYS
}

func (c *control) rotation(ctx context.Context, s *store.Store) (*rotation.Rotation, func(), error) {
	settings, bucket, err := c.unseal(ctx)
	if err != nil {
		return nil, nil, err
	}
	p := c.progress()
	r := &rotation.Rotation{Store: s, Bucket: bucket, Ring: settings.Ring}
	r.Progress = func(what string, found, resealed int) {
		p.tell(step{what: "Going through", text: what + ", " + plurals(found, "value", "values") + ", " + thousands(resealed) + " sealed anew"})
	}
	done := func() {
		p.end()
		_ = bucket.Close() // nothing is being written
	}
	return r, done, nil
}

func viewEncryption(r *rotation.Rotation, census rotation.Census) encryptionView {
	v := encryptionView{Newest: r.Ring.Newest(), Keys: []encryptionKey{}, Places: census}
	ids := r.Ring.IDs()
	for _, id := range ids {
		n := census.Of(id)
		v.Keys = append(v.Keys, encryptionKey{ID: id, InRing: true, Sealed: n, Removable: n == 0 && id != v.Newest})
	}
	for _, id := range census.Keys() {
		if !slices.Contains(ids, id) {
			v.Keys = append(v.Keys, encryptionKey{ID: id, Sealed: census.Of(id)})
		}
	}
	return v
}

func (c *control) encryptionStatus() *cobra.Command {
	return &cobra.Command{
		Use: "status", Short: "Count what each key has encrypted, and say which may go",
		Example: "  gatewayctl encryption status --json",
		Args:    needs(),
		RunE: c.run(func(ctx context.Context, s *store.Store, _ []string) (answer, error) {
			r, done, err := c.rotation(ctx, s)
			if err != nil {
				return nil, err
			}
			defer done()
			census, err := r.Count(ctx)
			if err != nil {
				return nil, err
			}
			return viewEncryption(r, census), nil
		}),
	}
}

func (c *control) encryptionRotate() *cobra.Command {
	var reason string
	cmd := &cobra.Command{
		Use: "rotate --reason WHY", Short: "Encrypt everything anew with the newest key",
		Long: `Encrypts anew, with the first key of CPF_CNPJ_KEYS, what the others have encrypted: numbers
in the tables, 500 in a commit, and uploaded files. Everything goes on meanwhile. When it is
interrupted, run it again: it does what is left. What is damaged is passed by, and named at
the end. Then it counts, as status does.`,
		Example: "  gatewayctl encryption rotate --reason 'yearly'",
		Args:    needs(),
		RunE: c.run(func(ctx context.Context, s *store.Store, _ []string) (answer, error) {
			by, err := c.whoAndWhy(reason)
			if err != nil {
				return nil, err
			}
			r, done, err := c.rotation(ctx, s)
			if err != nil {
				return nil, err
			}
			defer done()
			resealed, err := r.Run(ctx)
			if resealed > 0 { // what was done is written down even if it was broken off
				recorded := s.RecordRotation(context.WithoutCancel(ctx), by, map[string]any{"newest": r.Ring.Newest(), "resealed": resealed, "whole": err == nil})
				err = errors.Join(err, recorded)
			}
			if err != nil {
				return nil, err
			}
			census, err := r.Count(ctx)
			if err != nil {
				return nil, err
			}
			v := viewEncryption(r, census)
			v.Resealed, v.rotated = resealed, true
			return v, nil
		}),
	}
	return because(cmd, &reason, true)
}

func (v encryptionView) text(w io.Writer) {
	if v.rotated {
		fmt.Fprintf(w, "%s sealed anew with key %s.\n\n", plurals(v.Resealed, "value was", "values were"), v.Newest)
	}
	rows := [][]string{{"KEY", "SEALED", "STATE"}}
	var removable []string
	for _, k := range v.Keys {
		state := "old"
		switch {
		case !k.InRing:
			state = "not in CPF_CNPJ_KEYS: what it sealed cannot be read"
		case k.ID == v.Newest:
			state = "encrypts"
		case k.Removable:
			state = "may go"
			removable = append(removable, k.ID)
		}
		rows = append(rows, []string{k.ID, thousands(k.Sealed), state})
	}
	table(w, "", rows)
	if len(removable) > 0 {
		fmt.Fprintf(w, `
Nothing is sealed with %s any more. Once every api has been restarted with %s in front, and
this says so again, take it out of CPF_CNPJ_KEYS. Keep it as long as there are backups from before.
`, strings.Join(removable, ", "), v.Newest)
	}
}

// failure: what a missing key has sealed is lost until the key is back.
func (v encryptionView) failure() error {
	for _, k := range v.Keys {
		if !k.InRing {
			return fmt.Errorf("%s sealed with key %s, which CPF_CNPJ_KEYS does not hold", plurals(k.Sealed, "value is", "values are"), k.ID)
		}
	}
	if old := v.left(); v.rotated && old > 0 {
		return fmt.Errorf("%s sealed with an old key meanwhile: restart every api with %s in front, and run this again", plurals(old, "value was", "values were"), v.Newest)
	}
	return nil
}

// left is what old keys of the ring still seal.
func (v encryptionView) left() (n int) {
	for _, k := range v.Keys {
		if k.InRing && k.ID != v.Newest {
			n += k.Sealed
		}
	}
	return n
}
