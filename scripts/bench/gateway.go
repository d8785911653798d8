package bench

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"email-gateway/scripts/bench/environment"
	"email-gateway/shared/service"
)

// gatewayOptions are the differences from the default settings.
type gatewayOptions struct {
	// env is for all programs.
	env map[string]string
	// rate is SES's limit per second; 0 is unlimited.
	rate float64
	// onSend is called for every email that SES receives.
	onSend func(body []byte)
	// ses, if not nil, is the SES server to use, which the caller closes.
	ses *environment.SES
}

// gateway is one of each program with a system and a SES of their own.
type gateway struct {
	environment   *environment.Environment
	system        *environment.System
	ses           *environment.SES
	shared        bool     // ses is the caller's
	keys          []string // of the sending tenants, which take turns
	emailTemplate environment.EmailTemplate
	serial        atomic.Int64 // of the last email

	api, dispatcher, worker *environment.Program // nil while they are stopped
	tenant                  *tenant              // while there is an api
}

func openGateway(ctx context.Context, r *environment.Environment, o gatewayOptions) (*gateway, error) {
	text, err := environment.NewEmailTemplate()
	if err != nil {
		return nil, err
	}
	g := &gateway{environment: r, emailTemplate: text, ses: o.ses, shared: o.ses != nil}
	if !g.shared {
		if g.ses, err = environment.NewSES(o.rate, o.onSend); err != nil {
			return nil, err
		}
	}
	env := maps.Clone(o.env)
	if env == nil {
		env = make(map[string]string)
	}
	env["SES_ENDPOINT"] = g.ses.URL
	if g.system, err = r.NewSystem(ctx, env); err != nil {
		return nil, errors.Join(err, g.closeSES())
	}
	g.keys = []string{g.system.Key}
	return g, nil
}

// start starts those of the programs (by default api, dispatcher and worker) that are not running.
func (g *gateway) start(ctx context.Context, kinds ...string) (err error) {
	if len(kinds) == 0 {
		kinds = []string{"api", "dispatcher", "worker"}
	}
	for _, kind := range kinds {
		p := g.program(kind)
		if *p != nil {
			continue
		}
		if *p, err = g.system.Start(ctx, kind, nil); err != nil {
			return err
		}
		if kind == "api" {
			g.tenant = &tenant{
				addr: (*p).Addr, keys: g.keys, emailTemplate: g.emailTemplate, serial: &g.serial,
				client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 100}},
			}
		}
	}
	return nil
}

// stop stops programs (by default all) gracefully, the api first.
func (g *gateway) stop(ctx context.Context, kinds ...string) error {
	if len(kinds) == 0 {
		kinds = []string{"api", "dispatcher", "worker"}
	}
	var errs []error
	for _, kind := range kinds {
		p := g.program(kind)
		if *p == nil {
			continue
		}
		errs = append(errs, (*p).Stop(ctx))
		*p = nil
	}
	return errors.Join(errs...)
}

func (g *gateway) program(kind string) **environment.Program {
	switch kind {
	case "api":
		return &g.api
	case "dispatcher":
		return &g.dispatcher
	}
	return &g.worker
}

// close stops everything and drops the database.
func (g *gateway) close(ctx context.Context) error {
	return errors.Join(g.stop(ctx), g.system.Close(ctx), g.closeSES())
}

func (g *gateway) closeSES() error {
	if g.shared {
		return nil
	}
	return g.ses.Close()
}

const (
	// warmUpEmails are enough to open every connection and to prepare every statement once.
	warmUpEmails = 300
	// sendTimeout is the timeout of a batch, which normally takes seconds.
	sendTimeout = 3 * time.Minute
)

// warmUp sends some emails before a measurement.
func (g *gateway) warmUp(ctx context.Context) error {
	_, err := g.sendBatch(ctx, warmUpEmails)
	return err
}

// batch is the result of emails that were posted as fast as they were accepted.
type batch struct {
	emails   int
	accepted time.Duration // from the first POST to the last 202
	sent     time.Duration // from the first POST until Postgres holds the last one as SENT
}

// sendBatch posts n emails, or a few more, and waits until they are sent.
func (g *gateway) sendBatch(ctx context.Context, n int) (b batch, err error) {
	taken, start := g.ses.Taken(), time.Now()
	if b.emails, err = g.tenant.postBatch(ctx, n); err != nil {
		return b, err
	}
	b.accepted = time.Since(start)
	err = g.awaitSent(ctx, taken, start, b.emails)
	b.sent = time.Since(start)
	return b, err
}

// awaitSent waits until n emails that were accepted since start are SENT; taken is the number of
// emails at SES before. It queries Postgres only when SES has received all of them.
func (g *gateway) awaitSent(ctx context.Context, taken int64, start time.Time, n int) error {
	ctx, cancel := context.WithTimeoutCause(ctx, sendTimeout, fmt.Errorf("the batch of %d was not sent within %s", n, sendTimeout))
	defer cancel()
	for g.ses.Taken() < taken+int64(n) {
		if err := service.Pause(ctx, 2*time.Millisecond); err != nil {
			return fmt.Errorf("SES received %d: %w", g.ses.Taken()-taken, err)
		}
	}
	for {
		sent, open, err := g.countSent(ctx, start)
		if err != nil {
			return err
		}
		if open == 0 && sent >= n {
			return nil
		}
		if err := service.Pause(ctx, 2*time.Millisecond); err != nil {
			return fmt.Errorf("%d sent, %d open: %w", sent, open, err)
		}
	}
}

// countSent counts the emails accepted since start that are SENT, and those without a final state,
// by the primary key: ids begin with their time.
func (g *gateway) countSent(ctx context.Context, start time.Time) (sent, open int, err error) {
	var from uuid.UUID
	binary.BigEndian.PutUint64(from[:8], uint64(start.UnixMilli())<<16)
	err = g.system.Database.QueryRowContext(ctx, `
SELECT count(*) FILTER (WHERE status = 'SENT'), count(*) FILTER (WHERE processed_at IS NULL) FROM email_outbox WHERE id >= $1`, from).Scan(&sent, &open)
	if err != nil {
		return 0, 0, fmt.Errorf("count emails: %w", err)
	}
	return sent, open, nil
}
