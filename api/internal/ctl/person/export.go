package person

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"email-gateway/api/internal/ctl/command"
	"email-gateway/api/internal/ctl/operator"
	"email-gateway/api/internal/ctl/output"
	"email-gateway/api/internal/privacy"
	"email-gateway/shared/store"
)

func exportCommand(c *command.Invocation) *cobra.Command {
	var f personFlags
	var reason, out string
	cmd := &cobra.Command{
		Use: "export --company COMPANY (--cpf-cnpj NUMBER | --email ADDRESS)", Short: "Export everything stored about a person",
		Long: `Writes one JSON object with every row about the person: recipients, emails with their
content, logs with their timelines, mailing entries, dead letters, suppressions, stored
responses, and the lines of uploaded files that name the person. Numbers are in plain text.
The audit entry does not name the person.`,
		Example: `  gatewayctl person export --company Acme --cpf-cnpj 529.982.247-25 --out maria.json
  echo maria@cliente.example | gatewayctl person export --company Acme --email - --json`,
		Args: command.ExactArgs(),
		RunE: operator.Run(c, func(ctx context.Context, s *store.Store, _ []string) (output.Result, error) {
			q, err := f.query(c.Stdin)
			if err != nil {
				return nil, err
			}
			if out == "" && !c.JSON {
				return nil, command.Usagef("give --out FILE, or --json for standard output")
			}
			by, err := operator.Identity(c, reason)
			if err != nil {
				return nil, err
			}
			a, done, err := archive(ctx, c, s, f.company, &q)
			if err != nil {
				return nil, err
			}
			defer done()
			if out == "" {
				x, err := a.Export(ctx, by, q)
				if err != nil {
					return nil, adviseKeys(err)
				}
				return exported{&x, ""}, nil
			}
			var x privacy.Export
			err = writeOwn(out, func() (any, error) {
				x, err = a.Export(ctx, by, q)
				return &x, adviseKeys(err)
			})
			if err != nil {
				return nil, err
			}
			return exportedTo{Out: out, People: x.KnownBy.People, sharedIDs: x.KnownBy.SharedExternalIDs, sharedNumbers: x.KnownBy.SharedNumbers, Counts: x.Counts, UndecryptableFiles: x.UndecryptableFiles, UndecryptableNumbers: x.UndecryptableNumbers}, nil
		}),
	}
	cmd.Flags().StringVar(&out, "out", "", "write to a new `FILE` that only you can read")
	return addFlags(c, operator.ReasonFlag(cmd, &reason, false), &f)
}

// writeOwn writes the value that produce returns to a new file that only its owner can read. It creates the file first:
// an export takes long and has an audit entry, so it must not begin if its result cannot be stored. After an error
// there is no file.
func writeOwn(path string, produce func() (any, error)) (err error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return command.Usagef("--out: %v", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(path))
		}
	}()
	value, err := produce()
	if err != nil {
		return errors.Join(err, file.Close())
	}
	encoder := json.NewEncoder(file)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	if err := errors.Join(encoder.Encode(value), file.Close()); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}
