package ctl

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"email-gateway/api/internal/config"
	"email-gateway/api/internal/keyring"
	"email-gateway/api/internal/privacy"
	"email-gateway/shared/blob"
	"email-gateway/shared/email"
	"email-gateway/shared/environment"
	"email-gateway/shared/mailbox"
	"email-gateway/shared/store"
)

func (c *control) person() *cobra.Command {
	cmd := group("person", "Export or erase what a company holds about a person",
		`Looks for a person in all of a company's tables and uploaded files: by an address, or by a
CPF or CNPJ. Either leads to the person's other ids and addresses, those of the past too, as
far as a row says that they belong together. An address that names other people as well is
reported and not followed. It needs what the api has, because
numbers and files are encrypted: CPF_CNPJ_KEYS, CPF_CNPJ_HASH_KEY if it is set there, and
STORAGE_URL. Use the database as gateway_privacy (`+"`migrate roles`"+`): gateway_operator may not.

The text of emails to others is not searched.`,
		`  gatewayctl person export --company Acme --cpf-cnpj 529.982.247-25 --out maria.json
  gatewayctl person erase --company Acme --email maria@cliente.example --reason 'request of 2 March' --yes`)
	cmd.AddCommand(c.personExport(), c.personErase())
	return cmd
}

// personFlags say who is meant.
type personFlags struct{ company, taxID, address string }

func (c *control) personFlags(cmd *cobra.Command, f *personFlags) *cobra.Command {
	cmd.Flags().StringVar(&f.taxID, "cpf-cnpj", "", "the person's CPF or CNPJ, a `NUMBER`; - reads it from standard input")
	cmd.Flags().StringVar(&f.address, "email", "", "the person's `ADDRESS`; - reads it from standard input")
	return c.ofCompany(cmd, &f.company)
}

// query is what the flags mean, checked. A shell remembers what is typed: - keeps it out.
func (f *personFlags) query(stdin io.Reader) (privacy.Query, error) {
	if (f.taxID == "") == (f.address == "") {
		return privacy.Query{}, usagef("give --cpf-cnpj or --email, one of the two")
	}
	given := &f.taxID
	if f.address != "" {
		given = &f.address
	}
	if *given == "-" {
		if _, err := fmt.Fscanln(stdin, given); err != nil {
			return privacy.Query{}, usagef("standard input must be one line: a CPF, a CNPJ or an address")
		}
	}
	if f.address != "" {
		address, err := mailbox.ASCII(f.address)
		if err != nil {
			return privacy.Query{}, usagef("--email %v", err)
		}
		return privacy.Query{Address: address}, nil
	}
	bare, err := email.ParseTaxID(f.taxID)
	if err != nil {
		return privacy.Query{}, usagef("--cpf-cnpj %v", err)
	}
	return privacy.Query{TaxID: bare}, nil
}

// sealed is what opens what the api has encrypted.
type sealed struct {
	Ring       keyring.Ring   `env:"CPF_CNPJ_KEYS,required,notEmpty"`
	HashKey    config.HashKey `env:"CPF_CNPJ_HASH_KEY"`
	StorageURL string         `env:"STORAGE_URL,required,notEmpty"` // without a default: in a wrong folder there is nobody
}

// unseal reads the settings, and opens the storage; the caller closes it.
func (c *control) unseal(ctx context.Context) (sealed, *blob.Bucket, error) {
	var s sealed
	f := environment.Read(c.Environ, &s)
	if err := f.Err(); err != nil {
		return s, nil, usagef("this needs settings of the api's: %v", err)
	}
	bucket, err := blob.Open(ctx, s.StorageURL)
	if err != nil {
		return s, nil, err
	}
	if err := bucket.Ping(ctx); err != nil {
		return s, nil, errors.Join(fmt.Errorf("cannot use the storage that STORAGE_URL names: %w", err), bucket.Close())
	}
	return s, bucket, nil
}

// archive is where people of a company, which is put into q, are looked for; the caller
// calls done.
func (c *control) archive(ctx context.Context, s *store.Store, name string, q *privacy.Query) (a *privacy.Archive, done func(), err error) {
	company, err := findCompany(ctx, s, name)
	if err != nil {
		return nil, nil, err
	}
	q.CompanyID = company.ID
	settings, bucket, err := c.unseal(ctx)
	if err != nil {
		return nil, nil, err
	}
	p := c.progress()
	a = &privacy.Archive{Store: s, Bucket: bucket, Ring: settings.Ring, HashKey: settings.HashKey}
	a.Progress = func(what string, found int) {
		p.tell(step{what: "Looking through", text: what + ", " + plurals(found, "row", "rows") + " so far"})
	}
	done = func() {
		p.end()
		_ = bucket.Close() // nothing is being written
	}
	return a, done, nil
}

func (c *control) personExport() *cobra.Command {
	var f personFlags
	var reason, out string
	cmd := &cobra.Command{
		Use: "export --company COMPANY (--cpf-cnpj NUMBER | --email ADDRESS)", Short: "Write down all that is held about a person, for them",
		Long: `Writes one JSON object with every row about the person: recipients, emails with what they
said, logs with their timelines, entries of mailings, dead letters, suppressions, stored
answers, and the lines of uploaded files that name him. Numbers are in clear. That it was
done is written down, without who it was about.`,
		Example: `  gatewayctl person export --company Acme --cpf-cnpj 529.982.247-25 --out maria.json
  echo maria@cliente.example | gatewayctl person export --company Acme --email - --json`,
		Args: needs(),
		RunE: c.run(func(ctx context.Context, s *store.Store, _ []string) (answer, error) {
			q, err := f.query(c.Stdin)
			if err != nil {
				return nil, err
			}
			if out == "" && !c.json {
				return nil, usagef("say where to: --out FILE, or --json for standard output")
			}
			by, err := c.who(reason)
			if err != nil {
				return nil, err
			}
			a, done, err := c.archive(ctx, s, f.company, &q)
			if err != nil {
				return nil, err
			}
			defer done()
			x, err := a.Export(ctx, by, q)
			if err != nil {
				return nil, adviseKeys(err)
			}
			if out == "" {
				return exported{&x, ""}, nil
			}
			return exportedTo{Out: out, People: x.KnownBy.People, Counts: x.Counts, Unread: x.Unread, Unopened: x.Unopened}, writeOwn(out, x)
		}),
	}
	cmd.Flags().StringVar(&out, "out", "", "write to a new `FILE` that only you can read")
	return c.personFlags(because(cmd, &reason, false), &f)
}

// writeOwn writes a file that nobody else can read, and overwrites none.
func writeOwn(path string, value any) error {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return usagef("--out: %v", err)
	}
	encoder := json.NewEncoder(file)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	if err := errors.Join(encoder.Encode(value), file.Close()); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}

// adviseKeys says what to do about keys that are not the api's.
func adviseKeys(err error) error {
	if errors.Is(err, privacy.ErrForeignKeys) {
		return fmt.Errorf("%w: set them as they are set for the api; nothing was changed", err)
	}
	return err
}

// erasePatience is how long emails that are being sent are waited for: longer than a
// worker's lease of 60 s.
const erasePatience = 90 * time.Second

// taskPatience is how long a dispatcher has to remove tasks from Redis. It looks every second.
const taskPatience = 15 * time.Second

func (c *control) personErase() *cobra.Command {
	var f personFlags
	var reason string
	o := privacy.Order{}
	var yes bool
	cmd := &cobra.Command{
		Use: "erase --company COMPANY (--cpf-cnpj NUMBER | --email ADDRESS) --reason WHY", Short: "Take a person out of all of a company's tables and files",
		Long: `Takes a person out of everything that the company holds: recipients and dead letters,
emails, logs, timelines and entries of mailings, where it stays that there was one and
what became of it, so that a mailing's numbers stay true. Emails that have not been sent
end as CANCELLED. An uploaded file that names him is deleted. Suppressions of his
addresses stay, because they are what keeps him from being written to again;
--forget-suppressions deletes them too.

It prints a receipt: each address of the person, each table, and how many rows there were.
The addresses are stored until the erasure is complete, and nowhere after that.

It works in small commits. When it is interrupted, run it again: it does what is left.
Emails that a worker is sending are waited for up to 90 s; if some are left, it ends with
1 and is to be run again. It also ends with 1 if no dispatcher has looked for the emails'
tasks in Redis within 15 s. There is no way back.`,
		Example: "  gatewayctl person erase --company Acme --cpf-cnpj 529.982.247-25 --reason 'request of 2 March' --yes",
		Args:    needs(),
		RunE: c.run(func(ctx context.Context, s *store.Store, _ []string) (answer, error) {
			q, err := f.query(c.Stdin)
			if err != nil {
				return nil, err
			}
			if o.By, err = c.whoAndWhy(reason); err != nil {
				return nil, err
			}
			a, done, err := c.archive(ctx, s, f.company, &q)
			if err != nil {
				return nil, err
			}
			defer done()
			o.Query, o.Patience, o.TaskPatience = q, erasePatience, taskPatience
			if !yes {
				counts, people, err := a.Count(ctx, q)
				if err != nil {
					return nil, adviseKeys(err)
				}
				whose := ""
				if people > 1 {
					whose = fmt.Sprintf(" of %d people, who share the address (--cpf-cnpj means one of them),", people)
				}
				return nil, fmt.Errorf("%s%s would be erased, and nothing was done yet: add --yes", plurals(counts, "row and file", "rows and files"), whose)
			}
			did, err := a.Erase(ctx, o)
			return erased{did}, adviseKeys(err)
		}),
	}
	cmd.Flags().BoolVar(&yes, "yes", false, "do it; without it, rows are only counted")
	cmd.Flags().BoolVar(&o.Forget, "forget-suppressions", false, "delete the suppressions of his addresses too: he may be written to again")
	return c.personFlags(because(cmd, &reason, true), &f)
}
