package bench

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"email-gateway/scripts/bench/environment"
	"email-gateway/scripts/bench/results"
	"email-gateway/shared/service"
)

// tenants measures the cost of many companies, their lanes and old snapshots. Each part is a
// section: together they take more than ten minutes.
func tenants() []Section {
	return []Section{
		{Name: "tenants:dispatch", What: "10,000 companies with 50 due emails each and 10,000 lanes with later ones, compared with the same number of emails of one company", Run: runTenantsDispatch},
		{Name: "tenants:quiet", What: "POST to SES for a quiet tenant while 10,000 lanes are busy, compared with empty queues", Run: runTenantsQuiet},
		{Name: "tenants:turns", What: "emails dispatched of a company with 100 mailings, compared with one with one mailing", Run: runTenantsTurns},
		{Name: "tenants:idle", What: "CPU time of a dispatcher with 10,000 lanes of later emails", Run: runTenantsIdle},
		{Name: "tenants:snapshot", What: "200,000 emails sent while a REPEATABLE READ transaction is open, compared with sending without it", Run: runTenantsSnapshot},
	}
}

// later is the delay of emails that must not become due during a measurement.
const later = 12 * time.Hour

func manyCompanies(r *environment.Environment) int { return environment.Scale(r, 10_000, 200) }

// runTenantsDispatch compares the dispatcher's rate for many companies with that for one. Each
// measurement has a new database.
func runTenantsDispatch(ctx context.Context, r *environment.Environment, t *results.Table) error {
	many := environment.Companies{Name: "Empresa", Count: manyCompanies(r), Each: 50}
	idle := environment.Companies{Name: "Futura", Count: many.Count, Each: 1, Due: later}
	return t.Compare(ctx,
		results.Subject{
			Name: fmt.Sprintf("%d companies with %d due emails each, %d lanes with later ones", many.Count, many.Each, idle.Count), Unit: "emails/s",
			Measure: func(ctx context.Context) (float64, error) {
				return dispatchRate(ctx, r, t, "many companies: ", many.Emails(), func(s *environment.System) error {
					return errors.Join(s.AddCompanies(ctx, many), s.AddCompanies(ctx, idle))
				})
			},
		},
		results.Reference{
			Name: "one company", Budget: 0.8, Moonshot: 0.95,
			Measure: func(ctx context.Context) (float64, error) {
				return dispatchRate(ctx, r, t, "one company: ", many.Emails(), func(s *environment.System) error { return s.Seed(ctx, many.Emails()) })
			},
		},
	)
}

// dispatchRate measures the rate at which a dispatcher dispatches the emails that seed inserts,
// from the first eighth until a sixteenth is left.
func dispatchRate(ctx context.Context, r *environment.Environment, t *results.Table, prefix string, emails int, seed func(*environment.System) error) (rate float64, err error) {
	err = withDispatcher(ctx, r, seed, func(_ *environment.System, p *environment.Program, await func(tasks int) (int64, error)) error {
		if _, err := await(emails / 8); err != nil {
			return err
		}
		m := environment.NewMeter([]*environment.Program{p}, r.Postgres, r.Redis)
		if err := m.Start(); err != nil {
			return err
		}
		first, err := await(1)
		if err != nil {
			return err
		}
		last, err := await(emails - emails/16)
		if err := errors.Join(err, m.Stop()); err != nil {
			return err
		}
		m.Record(t, prefix, "email", float64(last-first))
		rate = float64(last-first) / m.Length.Seconds()
		return nil
	})
	return rate, err
}

// withDispatcher creates a system with the emails that seed inserts, starts a dispatcher with an
// unlimited window, and calls measure.
func withDispatcher(
	ctx context.Context, r *environment.Environment, seed func(*environment.System) error, measure func(s *environment.System, p *environment.Program, await func(tasks int) (int64, error)) error,
) (err error) {
	s, err := r.NewSystem(ctx, map[string]string{"SES_MAX_SEND_RATE": "100000000", "RESCUE_AFTER": "1h"})
	if err != nil {
		return err
	}
	ending := context.WithoutCancel(ctx)
	defer func() { err = errors.Join(err, r.StopPrograms(ending), s.Close(ending), r.EmptyRedis(ending)) }()
	client, err := r.RedisClient()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, client.Close()) }()
	if err := seed(s); err != nil {
		return err
	}
	if err := s.Vacuum(ctx); err != nil {
		return err
	}
	p, err := s.Start(ctx, "dispatcher", nil)
	if err != nil {
		return err
	}
	return measure(s, p, func(tasks int) (int64, error) { return awaitTasks(ctx, client, int64(tasks)) })
}

// runTenantsQuiet measures how much many busy lanes delay a quiet tenant's email. Each email is of another tenant: at SES's
// rate a company's share beside 10,000 busy ones is one email in 50 s, so one that sent more would not be quiet.
func runTenantsQuiet(ctx context.Context, r *environment.Environment, t *results.Table) error {
	busy := environment.Companies{Name: "Empresa", Count: manyCompanies(r), Each: 5}
	lanes := fmt.Sprintf("%d lanes busy", busy.Count)
	return compareQuiet(ctx, r, t, quietCase{
		tenants: warmUps + quietEmails(r), seed: func(s *environment.System) error { return s.AddCompanies(ctx, busy) },
		idle: "other lanes idle", busy: lanes, added: "added by " + lanes, budget: 1000, moonshot: 200,
	})
}

// runTenantsTurns measures how the dispatcher divides its turns between companies. Both companies
// have emails left when it ends.
func runTenantsTurns(ctx context.Context, r *environment.Environment, t *results.Table) error {
	each := environment.Scale(r, 500, 100)
	several := environment.Companies{Name: "Varias", Count: 1, Mailings: 100, Each: each}
	single := environment.Companies{Name: "Uma", Count: 1, Mailings: 1, Each: several.Emails()}
	for range t.Rounds() {
		err := withDispatcher(ctx, r, func(s *environment.System) error {
			return errors.Join(s.AddCompanies(ctx, several), s.AddCompanies(ctx, single))
		}, func(s *environment.System, p *environment.Program, await func(tasks int) (int64, error)) error {
			if _, err := await(several.Emails() / 2); err != nil {
				return err
			}
			if err := p.Stop(ctx); err != nil {
				return err
			}
			const dispatched = "SELECT count(*) FROM email_outbox o JOIN companies c ON c.id = o.company_id WHERE o.status = 'ENQUEUED' AND c.name = $1 || ' 1'"
			more, err := s.Count(ctx, dispatched, several.Name)
			if err != nil {
				return err
			}
			fewer, err := s.Count(ctx, dispatched, single.Name)
			if err != nil {
				return err
			}
			t.Say("%d emails of the company with %d mailings, %d of the one with one", more, several.Mailings, fewer)
			t.RecordPair(results.Subject{Name: fmt.Sprintf("dispatched of a company with %d mailings", several.Mailings), Unit: "emails"},
				results.Reference{Name: "of one with one mailing", Budget: 1.2, AtMost: true, Moonshot: 1}, float64(more), float64(fewer))
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// runTenantsIdle measures an idle dispatcher, for 30 s because it lists all lanes that often.
func runTenantsIdle(ctx context.Context, r *environment.Environment, t *results.Table) error {
	idle := environment.Companies{Name: "Futura", Count: manyCompanies(r), Each: 1, Due: later}
	watched := environment.Scale(r, 30*time.Second, 3*time.Second)
	for range t.Rounds() {
		err := withDispatcher(ctx, r, func(s *environment.System) error { return s.AddCompanies(ctx, idle) },
			func(_ *environment.System, p *environment.Program, await func(tasks int) (int64, error)) error {
				if _, err := await(1); err != nil { // the copied email: the first listing is complete
					return err
				}
				if err := service.Pause(ctx, 2*time.Second); err != nil {
					return err
				}
				m := environment.NewMeter([]*environment.Program{p}, r.Postgres)
				if err := m.Start(); err != nil {
					return err
				}
				if err := service.Pause(ctx, watched); err != nil {
					return err
				}
				if err := m.Stop(); err != nil {
					return err
				}
				lanes := fmt.Sprintf(", %d lanes with later emails", idle.Count)
				part := func(spent time.Duration) float64 { return 100 * spent.Seconds() / m.Length.Seconds() }
				t.Record(results.Quantity{Name: "idle dispatcher" + lanes, Unit: "% of a core", Budget: 2}, part(m.Spent[0]))
				t.Record(results.Quantity{Name: "postgres meanwhile" + lanes, Unit: "% of a core"}, part(m.Spent[1]))
				return nil
			})
		if err != nil {
			return err
		}
	}
	return nil
}

// runTenantsSnapshot compares sending with and without a transaction that prevents Postgres from
// removing index entries of taken emails. Each measurement has a new database.
func runTenantsSnapshot(ctx context.Context, r *environment.Environment, t *results.Table) error {
	n := environment.Scale(r, 200_000, 4_000)
	return t.Compare(ctx,
		results.Subject{Name: fmt.Sprintf("%d emails, a snapshot is held", n), Unit: "emails/s", Measure: func(ctx context.Context) (float64, error) {
			return seededTurn(ctx, r, t, "a snapshot is held", n, func(s *environment.System) (end func() error, err error) { return holdSnapshot(ctx, s) })
		}},
		results.Reference{Name: "none is held", Budget: 0.8, Moonshot: 0.95, Measure: func(ctx context.Context) (float64, error) {
			return seededTurn(ctx, r, t, "none is held", n, nil)
		}})
}

// holdSnapshot opens a transaction with a current snapshot, as a dump does, and returns a function that
// ends it.
func holdSnapshot(ctx context.Context, s *environment.System) (release func() error, err error) {
	tx, err := s.Database.BeginTx(context.WithoutCancel(ctx), &sql.TxOptions{Isolation: sql.LevelRepeatableRead, ReadOnly: true})
	if err != nil {
		return nil, fmt.Errorf("hold a snapshot: %w", err)
	}
	if _, err := tx.ExecContext(ctx, "SELECT count(*) FROM companies"); err != nil {
		return nil, errors.Join(fmt.Errorf("hold a snapshot: %w", err), tx.Rollback())
	}
	return tx.Rollback, nil
}
