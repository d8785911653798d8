package ctl

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"time"

	"github.com/spf13/cobra"

	"email-gateway/api/internal/client"
	"email-gateway/api/internal/doctor"
	"email-gateway/schema"
	"email-gateway/shared/blob"
	"email-gateway/shared/service"
	"email-gateway/shared/store"
)

// doctorTime is how long the whole examination may take: a dependency that hangs is as
// bad as one that is away.
const doctorTime = 30 * time.Second

func (c *control) doctor() *cobra.Command {
	return &cobra.Command{
		Use: "doctor", Short: "Look at everything, and say what is not well and what to do",
		Long: `Looks at the database and its shape, at roles, clocks and settings, at who is running and
what they say of Redis, RabbitMQ, SES and the storage, at the gate before the provider, at
what waits and at what was given up, and says of each what to do about it. It changes
nothing.

It needs DATABASE_URL, and looks at more where more is set: the api's settings where
CPF_CNPJ_KEYS is, the api at API_URL, or on this machine where only API_ADDR is, the
storage at STORAGE_URL.

Of dispatcher and worker it knows what they say, and not what they are set to: that stands
in their environment. They read it as a whole when they start, and one that is wrong ends
them, with a line that names it. What has to be the same for several programs
(UNSUBSCRIBE_KEY, PUBLIC_URL, STORAGE_URL) is compared by nobody.

It ends with 1 when something does not work; a warning is no failure.`,
		Example: "  gatewayctl doctor\n  docker compose run --rm gatewayctl doctor\n  gatewayctl doctor --json | jq '.findings[] | select(.status != \"ok\")'",
		Args:    needs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			c.began = true
			databaseURL := c.Getenv("DATABASE_URL")
			if databaseURL == "" {
				return noDatabase()
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), doctorTime)
			defer cancel()
			found, err := c.examine(ctx, databaseURL)
			if err != nil {
				return err
			}
			return c.print(examined{found})
		},
	}
}

func (c *control) examine(ctx context.Context, databaseURL string) (report doctor.Report, err error) {
	newest, err := schema.Newest()
	if err != nil {
		return report, err
	}
	p := doctor.Patient{Environ: c.Environ, Newest: newest}
	o := c.storeOptions(2) // two tell whether a pooler is in between
	o.StatementTimeout = doctorTime / 3
	if s, err := store.Open(ctx, databaseURL, o); err != nil {
		p.StoreErr = err
	} else {
		defer s.Close() //nolint:errcheck // nothing was changed
		p.Store = s
	}
	if address := c.Getenv("DATABASE_LISTEN_URL"); address != "" {
		p.ListenPooled = func(ctx context.Context) (pooled bool, err error) {
			s, err := store.Open(ctx, address, o)
			if err != nil {
				return false, err
			}
			defer func() { err = errors.Join(err, s.Close()) }()
			return s.Pooled(ctx)
		}
	}
	if address := c.apiAddress(); address != "" {
		p.Health = func(ctx context.Context) (h doctor.Health, err error) {
			api, err := client.New(address, "")
			if err != nil {
				return h, fmt.Errorf("API_URL %w", err)
			}
			defer api.Close()
			return h, api.Health(ctx, &h)
		}
	}
	if address := c.Getenv("STORAGE_URL"); address != "" {
		p.Ping = func(ctx context.Context) (err error) {
			if err := isThere(address); err != nil {
				return err
			}
			bucket, err := blob.Open(ctx, address)
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, bucket.Close()) }()
			return bucket.Ping(ctx)
		}
	}
	return doctor.Examine(ctx, p), nil
}

// apiAddress is where the api is: API_URL, or what the api's own settings say of the machine
// that it shares with this program.
func (c *control) apiAddress() string {
	if address := c.Getenv("API_URL"); address != "" {
		return address
	}
	address, err := service.LocalAddress(c.Getenv("API_ADDR"))
	if err != nil {
		return ""
	}
	return "http://" + address
}

// isThere looks for the folder of a file:// URL: a ping would make it, and a doctor
// changes nothing.
func isThere(address string) error {
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "file" {
		return nil // blob.Open says what is wrong with it
	}
	if _, err := os.Stat(u.Path); err != nil {
		return fmt.Errorf("on this machine: %w", err)
	}
	return nil
}

// examined is what the doctor has found.
type examined struct{ doctor.Report }

func (v examined) failure() error {
	if n := v.count(doctor.Failure); n > 0 {
		return fmt.Errorf("%s not work", plural(n, "thing does", "things do"))
	}
	return nil
}

func (v examined) count(s doctor.Status) (n int) {
	for _, f := range v.Findings {
		if f.Status == s {
			n++
		}
	}
	return n
}

func (v examined) text(w io.Writer) {
	words := map[doctor.Status]string{doctor.OK: "ok", doctor.Skipped: "skipped", doctor.Warning: "WARNING", doctor.Failure: "FAILURE"}
	for _, f := range v.Findings {
		fmt.Fprintf(w, "%-8s  %-12s %s\n", words[f.Status], f.Check, printable(f.Text))
		if f.Advice != "" {
			fmt.Fprintf(w, "%24s-> %s\n", "", printable(f.Advice))
		}
	}
	fmt.Fprintf(w, "\n%s, %s, %d skipped.\n", plural(v.count(doctor.Failure), "failure", "failures"), plural(v.count(doctor.Warning), "warning", "warnings"), v.count(doctor.Skipped))
}
