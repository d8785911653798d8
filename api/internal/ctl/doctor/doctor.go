// Package doctor implements gatewayctl doctor, which checks an installation for operators. The
// checks are in api/internal/doctor.
package doctor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"email-gateway/api/internal/client"
	"email-gateway/api/internal/ctl/command"
	"email-gateway/api/internal/ctl/operator"
	"email-gateway/api/internal/ctl/output"
	"email-gateway/api/internal/doctor"
	"email-gateway/schema"
	"email-gateway/shared/blob"
	"email-gateway/shared/service"
	"email-gateway/shared/store"
	"email-gateway/shared/store/installation"
	"email-gateway/shared/store/retention"
)

// doctorTimeout limits the whole run: a dependency that hangs counts as unreachable.
const doctorTimeout = 30 * time.Second

// Command returns the command `gatewayctl doctor`.
func Command(c *command.Invocation) *cobra.Command {
	return &cobra.Command{
		Use: "doctor", Short: "Check the installation and advise how to fix problems",
		Long: `Checks the database and its schema, roles, clocks and settings; which processes run and the
state they report of Redis, RabbitMQ, SES and the storage; the circuit breaker of the
provider; the backlog and the dead letters. For each problem it prints what to do. It
changes nothing.

It needs DATABASE_URL and checks more if more is set: the api's settings if CPF_CNPJ_KEYS
is set, the api itself at API_URL (or on this machine if only API_ADDR is set), the storage
at STORAGE_URL.

Of dispatcher and worker it sees only what they report, not their settings. They validate
their environment when they start, and exit with a message that names an invalid variable.
With the api's settings it compares PUBLIC_URL, UNSUBSCRIBE_KEY and CPF_CNPJ_KEYS with what
the workers report. A program whose STORAGE_URL names another storage than the api's reports
it as unreachable.

The exit code is 1 if a check fails; warnings do not change it.`,
		Example: "  gatewayctl doctor\n  docker compose run --rm gatewayctl doctor\n  gatewayctl doctor --json | jq '.findings[] | select(.status != \"ok\")'",
		Args:    command.ExactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			c.Parsed = true
			databaseURL := c.Getenv("DATABASE_URL")
			if databaseURL == "" {
				return operator.MissingDatabase()
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), doctorTimeout)
			defer cancel()
			found, err := examine(ctx, c, databaseURL)
			if err != nil {
				return err
			}
			return c.Print(doctorReport{found})
		},
	}
}

func examine(ctx context.Context, c *command.Invocation, databaseURL string) (report doctor.Report, err error) {
	newest, err := schema.Newest()
	if err != nil {
		return report, err
	}
	p := doctor.Inputs{Environ: c.Environ, Newest: newest, Grants: schema.RolesFingerprint()}
	o := operator.StoreOptions(c, 2) // two connections are needed to detect a pooler
	o.StatementTimeout = doctorTimeout / 3
	if s, err := store.Open(ctx, databaseURL, o); err != nil {
		p.StoreErr = err
	} else {
		defer s.Close()
		p.Store, p.Partitions = s, retention.New(s.DB())
		p.Ping = pingStorage(c.Getenv("STORAGE_URL"), installation.New(s.DB()))
	}
	if address := c.Getenv("DATABASE_LISTEN_URL"); address != "" {
		p.ListenPooled = func(ctx context.Context) (bool, error) {
			s, err := store.Open(ctx, address, o)
			if err != nil {
				return false, err
			}
			defer s.Close()
			return s.Pooled(ctx)
		}
	}
	if address := apiAddress(c); address != "" {
		p.Health = func(ctx context.Context) (h doctor.Health, err error) {
			api, err := client.New(address, "")
			if err != nil {
				return h, fmt.Errorf("API_URL %w", err)
			}
			defer api.Close()
			return h, api.Health(ctx, &h)
		}
	}
	return doctor.Examine(ctx, p), nil
}

// pingStorage returns the check of the storage, which must be that of the installation in the database; nil without a URL.
func pingStorage(url string, owner *installation.Store) func(context.Context) error {
	if url == "" {
		return nil
	}
	return func(ctx context.Context) (err error) {
		bucket, err := blob.Open(ctx, url, blob.Options{Owner: owner})
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, bucket.Close()) }()
		return bucket.Ping(ctx)
	}
}

// apiAddress is API_URL, or the local address that follows from API_ADDR if the api runs
// on the same machine.
func apiAddress(c *command.Invocation) string {
	if address := c.Getenv("API_URL"); address != "" {
		return address
	}
	address, err := service.LocalAddress(c.Getenv("API_ADDR"))
	if err != nil {
		return ""
	}
	return "http://" + address
}

// doctorReport is the report of doctor.
type doctorReport struct{ doctor.Report }

func (v doctorReport) Failure() error {
	if n := v.count(doctor.Failure); n > 0 {
		return fmt.Errorf("%s", output.Plural(n, "check failed", "checks failed"))
	}
	return nil
}

func (v doctorReport) count(s doctor.Status) (n int) {
	for _, f := range v.Findings {
		if f.Status == s {
			n++
		}
	}
	return n
}

func (v doctorReport) WriteText(w io.Writer) {
	words := map[doctor.Status]string{doctor.OK: "ok", doctor.Skipped: "skipped", doctor.Warning: "WARNING", doctor.Failure: "FAILURE"}
	for _, f := range v.Findings {
		fmt.Fprintf(w, "%-8s  %-12s %s\n", words[f.Status], f.Check, output.Printable(f.Text))
		if f.Advice != "" {
			fmt.Fprintf(w, "%24s-> %s\n", "", output.Printable(f.Advice))
		}
	}
	fmt.Fprintf(w, "\n%s, %s, %d skipped.\n", output.Plural(v.count(doctor.Failure), "failure", "failures"), output.Plural(v.count(doctor.Warning), "warning", "warnings"), v.count(doctor.Skipped))
}
