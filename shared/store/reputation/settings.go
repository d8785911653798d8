package reputation

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jmoiron/sqlx"

	"email-gateway/shared/store/audit"
	"email-gateway/shared/store/internal/pg"
	"email-gateway/shared/store/sql"
)

// ErrRule means that there is no such rule, or that its thresholds or a Switch are invalid.
var ErrRule = errors.New("no such rule, or no such thresholds")

// ruleDefault has the thresholds of a rule.
type ruleDefault struct {
	rule Rule
	Thresholds
}

// defaultsParameters are the parameters of set_reputation_defaults.sql: whether the guard is enabled, and the rules.
var defaultsParameters = pg.Parameters[bool, ruleDefault]{
	Scalars: []pg.Scalar[bool]{pg.One("enabled", "bool", func(enabled bool) any { return enabled })},
	Columns: []pg.Column[ruleDefault]{
		pg.Each("rule", "text", pg.Texts, func(d *ruleDefault) string { return string(d.rule) }),
		pg.Each("warn", "bigint", pg.BigInts, func(d *ruleDefault) int64 { return int64(d.Warn) }),
		pg.Each("pause", "bigint", pg.BigInts, func(d *ruleDefault) int64 { return int64(d.Pause) }),
		pg.Each("sent", "bigint", pg.BigInts, func(d *ruleDefault) int64 { return int64(d.MinSent) }),
		pg.Each("events", "bigint", pg.BigInts, func(d *ruleDefault) int64 { return int64(d.MinEvents) }),
	},
}

// SetDefaults sets the defaults for companies without settings of their own. All rules must be given.
func (s *Store) SetDefaults(ctx context.Context, enabled bool, rules map[Rule]Thresholds) error {
	var rows []ruleDefault
	for _, rule := range Rules() {
		t := rules[rule]
		if err := t.check(); err != nil {
			return fmt.Errorf("set reputation defaults: %s: %w: %w", rule, ErrRule, err)
		}
		rows = append(rows, ruleDefault{rule, t})
	}
	_, err := s.db.Exec(ctx, sql.SetReputationDefaults, defaultsParameters.Arguments(enabled, rows)...)
	return pg.Wrap("set reputation defaults", err)
}

// Switch is whether the guard checks a company.
type Switch string

// Values of a Switch.
const (
	On      Switch = "on"
	Off     Switch = "off"
	Default Switch = "default" // the setting of the installation
)

// enabled returns the database value of the switch; nil = Default.
func (s Switch) enabled() *bool {
	if s == Default {
		return nil
	}
	on := s == On
	return &on
}

// Settings are an operator's settings for one company. Settings that are not given are unchanged.
type Settings struct {
	Guard Switch // "" = not given
	// Rules are thresholds by rule; nil = the thresholds of the installation.
	Rules map[Rule]*Thresholds
}

const (
	// setEnabledSQL writes the company's row by primary key.
	setEnabledSQL = `
INSERT INTO company_reputation AS r (company_id, enabled) SELECT id, $2::boolean FROM companies WHERE id = $1
ON CONFLICT (company_id) DO UPDATE SET enabled = excluded.enabled WHERE r.enabled IS DISTINCT FROM excluded.enabled`

	// setRuleSQL writes one row by primary key.
	setRuleSQL = `
INSERT INTO company_reputation_rules AS r (company_id, rule, warn_ppm, pause_ppm, min_sent, min_events) SELECT id, $2, $3, $4, $5, $6 FROM companies WHERE id = $1
ON CONFLICT (company_id, rule) DO UPDATE SET warn_ppm = excluded.warn_ppm, pause_ppm = excluded.pause_ppm, min_sent = excluded.min_sent, min_events = excluded.min_events
WHERE (r.warn_ppm, r.pause_ppm, r.min_sent, r.min_events) IS DISTINCT FROM (excluded.warn_ppm, excluded.pause_ppm, excluded.min_sent, excluded.min_events)`

	// dropRuleSQL deletes one row by primary key.
	dropRuleSQL = `DELETE FROM company_reputation_rules WHERE company_id = $1 AND rule = $2`

	// checkSoonSQL updates the company's row by primary key, if the company was checked before.
	checkSoonSQL = `UPDATE company_reputation SET check_at = now() WHERE company_id = $1 AND checked_at IS NOT NULL`
)

// Set changes settings of the company. The dispatchers apply them within seconds to the emails of the
// last day. Paused mailings stay paused. Set returns ErrRule and changes nothing if a setting is invalid.
func (s *Store) Set(ctx context.Context, by audit.Operator, company uuid.UUID, settings Settings) error {
	a := audit.Change{Action: "company.reputation", Company: company, Details: map[string]any{}}
	switch settings.Guard {
	case "":
	case On, Off, Default:
		a.Details["guard"] = settings.Guard
	default:
		return fmt.Errorf("set reputation rules: guard: %w", ErrRule)
	}
	for rule, t := range settings.Rules {
		if !slices.Contains(Rules(), rule) || t != nil && t.check() != nil {
			return fmt.Errorf("set reputation rules: %s: %w", rule, ErrRule)
		}
		a.Details[string(rule)] = t
	}
	_, err := audit.Apply(ctx, s.db, by, a, func(tx *sqlx.Tx, _ *audit.Change) error {
		changed, err := set(ctx, tx, company, settings)
		if err != nil {
			return err
		}
		if !changed {
			return audit.ErrUnchanged
		}
		_, err = tx.ExecContext(ctx, checkSoonSQL, company)
		return pg.Translate(err)
	})
	return pg.Wrap("set reputation rules", err)
}

func set(ctx context.Context, tx *sqlx.Tx, company uuid.UUID, settings Settings) (changed bool, err error) {
	if _, err := tx.ExecContext(ctx, pg.BoundWaitSQL, pg.LockTimeout(pg.LockWait)); err != nil {
		return false, pg.Translate(err)
	}
	run := func(statement string, args ...any) error {
		n, err := audit.Affected(tx.ExecContext(ctx, statement, args...))
		if errors.Is(err, audit.ErrUnchanged) {
			return nil
		}
		changed = changed || n > 0
		return err
	}
	if settings.Guard != "" {
		if err := run(setEnabledSQL, company, settings.Guard.enabled()); err != nil {
			return false, err
		}
	}
	for _, rule := range Rules() {
		t, given := settings.Rules[rule]
		switch {
		case !given:
		case t == nil:
			err = run(dropRuleSQL, company, string(rule))
		default:
			err = run(setRuleSQL, company, string(rule), int64(t.Warn), int64(t.Pause), t.MinSent, t.MinEvents)
		}
		if err != nil {
			return false, err
		}
	}
	return changed, nil
}

// RuleOf is a rule with the thresholds and the Measure of a company.
type RuleOf struct {
	Rule Rule `db:"rule"`
	Own  bool `db:"own"` // the thresholds are the company's own
	Thresholds
	Measured Measure `db:"-"`
}

// rulesSQL reads reputation_defaults, which has four rows, and those of the company by primary key.
const rulesSQL = `
SELECT d.rule, o.rule IS NOT NULL AS own, coalesce(o.warn_ppm, d.warn_ppm) AS warn_ppm, coalesce(o.pause_ppm, d.pause_ppm) AS pause_ppm,
       coalesce(o.min_sent, d.min_sent) AS min_sent, coalesce(o.min_events, d.min_events) AS min_events
FROM reputation_defaults d LEFT JOIN company_reputation_rules o ON o.company_id = $1 AND o.rule = d.rule`

// rulesOf returns all rules in the order of Rules.
func rulesOf(ctx context.Context, on sqlx.QueryerContext, company uuid.UUID) ([]RuleOf, error) {
	var found []RuleOf
	if err := sqlx.SelectContext(ctx, on, &found, rulesSQL, company); err != nil {
		return nil, fmt.Errorf("read rules: %w", pg.Translate(err))
	}
	order := Rules()
	slices.SortFunc(found, func(a, b RuleOf) int { return slices.Index(order, a.Rule) - slices.Index(order, b.Rule) })
	return found, nil
}

// Status is the state of a company in the reputation guard.
type Status struct {
	Enabled    bool            `db:"enabled"`
	OwnEnabled bool            `db:"own_enabled"` // Enabled is the company's own setting
	PausedAt   *time.Time      `db:"paused_at"`
	Pause      json.RawMessage `db:"pause"` // null, or the Finding that paused the mailings
	CountsFrom time.Time       `db:"counts_from"`
	CheckedAt  *time.Time      `db:"checked_at"` // sends are counted until then
	Rules      []RuleOf        `db:"-"`
}

// statusSQL reads companies and company_reputation by primary key and locks nothing.
const statusSQL = `
SELECT coalesce(r.enabled, g.enabled) AS enabled, r.enabled IS NOT NULL AS own_enabled, c.mailings_paused_at AS paused_at,
       coalesce(CASE WHEN c.mailings_paused_at IS NOT NULL THEN r.pause END, 'null') AS pause, greatest(r.counts_from, g.counts_from) AS counts_from, r.checked_at
FROM companies c JOIN reputation_guard g ON g.singleton LEFT JOIN company_reputation r ON r.company_id = c.id
WHERE c.id = $1`

// Find returns the company's settings and measures, or pg.ErrNotFound.
func (s *Store) Find(ctx context.Context, company uuid.UUID) (Status, error) {
	var found Status
	if err := s.db.Get(ctx, &found, statusSQL, company); err != nil {
		return Status{}, fmt.Errorf("find reputation: %w", err)
	}
	rules, err := rulesOf(ctx, s.db, company)
	if err != nil {
		return Status{}, fmt.Errorf("find reputation: %w", err)
	}
	measured, err := measure(ctx, s.db, company, found.CountsFrom)
	if err != nil {
		return Status{}, fmt.Errorf("find reputation: %w", err)
	}
	for i := range rules {
		rules[i].Measured = measured[rules[i].Rule]
	}
	found.Rules = rules
	return found, nil
}
