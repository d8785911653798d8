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
	"email-gateway/api/internal/privacy"
	"email-gateway/shared/blob"
	"email-gateway/shared/email"
	"email-gateway/shared/environment"
	"email-gateway/shared/keyring"
	"email-gateway/shared/mailbox"
	"email-gateway/shared/store"
	people "email-gateway/shared/store/person"
)

func (c *control) person() *cobra.Command {
	cmd := group("person", "Export or erase what a company holds about a person",
		`Searches all of a company's tables and uploaded files for a person, by address or by CPF or
CNPJ. From there it follows the rows to the person's other ids and addresses, including former
ones. An address that other people share is reported and not followed. It needs settings of
the api, because numbers and files are encrypted: CPF_CNPJ_KEYS, CPF_CNPJ_HASH_KEY if the api
sets it, and STORAGE_URL. Connect to the database as gateway_privacy (`+"`migrate roles`"+`):
gateway_operator lacks the permissions.

The text of emails to others is not searched.`,
		`  gatewayctl person export --company Acme --cpf-cnpj 529.982.247-25 --out maria.json
  gatewayctl person erase --company Acme --email maria@cliente.example --reason 'request of 2 March' --yes`)
	cmd.AddCommand(c.personExport(), c.personErase())
	return cmd
}

// personFlags identify the person.
type personFlags struct{ company, taxID, address string }

func (c *control) personFlags(cmd *cobra.Command, f *personFlags) *cobra.Command {
	cmd.Flags().StringVar(&f.taxID, "cpf-cnpj", "", "the person's CPF or CNPJ, a `NUMBER`; - reads it from standard input")
	cmd.Flags().StringVar(&f.address, "email", "", "the person's `ADDRESS`; - reads it from standard input")
	return c.ofCompany(cmd, &f.company)
}

// query validates the flags. With -, the value does not appear in the shell's history.
func (f *personFlags) query(stdin io.Reader) (privacy.Query, error) {
	if (f.taxID == "") == (f.address == "") {
		return privacy.Query{}, usagef("give exactly one of --cpf-cnpj and --email")
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

// encryptionSettings holds the settings that decrypt what the api has encrypted.
type encryptionSettings struct {
	Ring       keyring.Ring   `env:"CPF_CNPJ_KEYS,required,notEmpty"`
	HashKey    config.HashKey `env:"CPF_CNPJ_HASH_KEY"`
	StorageURL string         `env:"STORAGE_URL,required,notEmpty"` // no default: in a wrong folder no person's files would be found
}

// openEncrypted reads the settings and opens the storage; the caller closes it.
func (c *control) openEncrypted(ctx context.Context) (encryptionSettings, *blob.Bucket, error) {
	var s encryptionSettings
	f := environment.Read(c.Environ, &s)
	if err := f.Err(); err != nil {
		return s, nil, usagef("this command needs the api's settings: %v", err)
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

// archive sets q's company and returns where its people are searched; the caller calls
// done.
func (c *control) archive(ctx context.Context, s *store.Store, name string, q *privacy.Query) (a *privacy.Archive, done func(), err error) {
	company, err := findCompany(ctx, s, name)
	if err != nil {
		return nil, nil, err
	}
	q.CompanyID = company.ID
	settings, bucket, err := c.openEncrypted(ctx)
	if err != nil {
		return nil, nil, err
	}
	p := c.progress()
	a = &privacy.Archive{Store: s, People: people.New(s.DB()), Bucket: bucket, Ring: settings.Ring, HashKey: settings.HashKey}
	a.Progress = func(what string, found int) {
		p.update(step{what: "Searching", text: what + ", " + plurals(found, "row", "rows") + " so far"})
	}
	done = func() {
		p.end()
		_ = bucket.Close() // read only
	}
	return a, done, nil
}

func (c *control) personExport() *cobra.Command {
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
		Args: exactArgs(),
		RunE: c.run(func(ctx context.Context, s *store.Store, _ []string) (answer, error) {
			q, err := f.query(c.Stdin)
			if err != nil {
				return nil, err
			}
			if out == "" && !c.json {
				return nil, usagef("give --out FILE, or --json for standard output")
			}
			by, err := c.operatorIdentity(reason)
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
	return c.personFlags(auditReasonFlag(cmd, &reason, false), &f)
}

// writeOwn writes a new file that only its owner can read.
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

// adviseKeys explains what to do if the keys are not those of the api.
func adviseKeys(err error) error {
	if errors.Is(err, privacy.ErrForeignKeys) {
		return fmt.Errorf("%w: use the api's keys; nothing was changed", err)
	}
	return err
}

// eraseTimeout limits the wait for emails that are being sent: longer than a worker's lease
// of 60 s.
const eraseTimeout = 90 * time.Second

// taskTimeout limits the wait for a dispatcher, which looks every second, to remove tasks from Redis.
const taskTimeout = 15 * time.Second

func (c *control) personErase() *cobra.Command {
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
		Args:    exactArgs(),
		RunE: c.run(func(ctx context.Context, s *store.Store, _ []string) (answer, error) {
			q, err := f.query(c.Stdin)
			if err != nil {
				return nil, err
			}
			if o.By, err = c.operatorWithReason(reason); err != nil {
				return nil, err
			}
			a, done, err := c.archive(ctx, s, f.company, &q)
			if err != nil {
				return nil, err
			}
			defer done()
			o.Query, o.Timeout, o.TaskTimeout = q, eraseTimeout, taskTimeout
			if !yes {
				counts, people, err := a.Count(ctx, q)
				if err != nil {
					return nil, adviseKeys(err)
				}
				whose := ""
				if people > 1 {
					whose = fmt.Sprintf(" of %d people who share the address (select one with --cpf-cnpj)", people)
				}
				return nil, fmt.Errorf("%s%s would be erased; nothing was changed: repeat the command with --yes", plurals(counts, "row and file", "rows and files"), whose)
			}
			did, err := a.Erase(ctx, o)
			return erased{did}, adviseKeys(err)
		}),
	}
	cmd.Flags().BoolVar(&yes, "yes", false, "confirm; without it, rows are only counted")
	cmd.Flags().BoolVar(&o.Forget, "forget-suppressions", false, "also delete suppressions of the person's addresses: they can be emailed again")
	return c.personFlags(auditReasonFlag(cmd, &reason, true), &f)
}
