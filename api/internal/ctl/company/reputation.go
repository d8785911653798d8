package company

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"email-gateway/api/internal/ctl/command"
	"email-gateway/api/internal/ctl/operator"
	"email-gateway/api/internal/ctl/output"
	"email-gateway/shared/store"
	"email-gateway/shared/store/audit"
	"email-gateway/shared/store/lane"
	"email-gateway/shared/store/reputation"
	"email-gateway/shared/store/tenant"
)

func reputationCommand(c *command.Invocation) *cobra.Command {
	cmd := command.Group("reputation", "Show and set a company's reputation guard, and resume its mailings",
		`The reputation guard pauses the mailings of a company whose emails bounce or draw complaints too
often, as SES reports. The company's single emails are still sent. A pause lasts until an operator
resumes the mailings. The dispatcher's REPUTATION_ settings apply to companies without settings of
their own.`,
		`  gatewayctl company reputation show Acme
  gatewayctl company reputation resume Acme --reason 'the list was cleaned'`)
	cmd.AddCommand(reputationShowCommand(c), reputationSetCommand(c), reputationResumeCommand(c))
	return cmd
}

func reputationOf(s *store.Store) *reputation.Store {
	return reputation.New(s.DB(), func(ctx context.Context, company uuid.UUID) error {
		return s.WakeLanes(ctx, []lane.Lanes{{Company: company}})
	})
}

func reputationShowCommand(c *command.Invocation) *cobra.Command {
	return &cobra.Command{
		Use: "show COMPANY", Short: "Show a company's rates and thresholds",
		Long: `Shows the rates of the emails that the company sent in the last hour and the last 24 hours, with
the thresholds. Sends are counted at each check of the company, which follows new feedback.`,
		Example: "  gatewayctl company reputation show Acme",
		Args:    command.ExactArgs("COMPANY"), ValidArgsFunction: operator.CompleteCompanies(c),
		RunE: show(c, viewReputation),
	}
}

func reputationSetCommand(c *command.Invocation) *cobra.Command {
	cmd := &cobra.Command{
		Use: "set COMPANY NAME=VALUE...", Short: "Set thresholds for one company, or turn its guard off",
		Long: `Sets rules of the company; the others stay unchanged. A value is WARN,PAUSE,SENT,EVENTS: the rates
in percent at which the guard warns and pauses, and how many emails must have been sent in the
rule's time, and how many of them have bounced or drawn a complaint, before the rate counts.
default removes the company's own thresholds, so that the dispatcher's REPUTATION_ setting applies
again. guard=off turns the guard off for the company, guard=on turns it on, guard=default follows
REPUTATION_GUARD. The dispatcher applies a change within seconds. Mailings that are paused stay so.

Rules:
  ` + strings.Join(ruleNames(), "\n  "),
		Example: `  gatewayctl company reputation set Acme bounces_1h=8,15,500,50 --reason 'an old list, agreed'
  gatewayctl company reputation set Acme bounces_1h=default complaints_24h=default
  gatewayctl company reputation set Acme guard=off --reason 'tests of their own domain'`,
	}
	return settings[reputation.Settings]{
		usage: "NAME=VALUE, such as bounces_1h=8,15,500,50 or guard=off",
		parse: parseReputation,
		set: func(ctx context.Context, s *store.Store, by audit.Operator, company uuid.UUID, values reputation.Settings) error {
			return reputationOf(s).Set(ctx, by, company, values)
		},
		show: viewReputation,
	}.setCommand(c, cmd)
}

func reputationResumeCommand(c *command.Invocation) *cobra.Command {
	var reason string
	cmd := &cobra.Command{
		Use: "resume COMPANY --reason REASON", Short: "Resume a company's mailings",
		Long: `Resumes the mailings that the reputation guard has paused, within 10 seconds. From then on only
emails that are sent after the resume count. The tenant gets the event MAILINGS_RESUMED.

Lanes that an operator has paused, and mailings that the tenant has paused, stay so.`,
		Example: "  gatewayctl company reputation resume Acme --reason 'the list was cleaned'",
		Args:    command.ExactArgs("COMPANY"), ValidArgsFunction: operator.CompleteCompanies(c),
		RunE: operator.Run(c, func(ctx context.Context, s *store.Store, args []string) (output.Result, error) {
			by, err := operator.IdentityWithReason(c, reason)
			if err != nil {
				return nil, err
			}
			company, err := operator.FindCompany(ctx, s, args[0])
			if err != nil {
				return nil, err
			}
			resumed, err := reputationOf(s).Resume(ctx, by, company.ID)
			return mailingsResumed{CompanyID: company.ID, Company: company.Name, Resumed: resumed}, err
		}),
	}
	return operator.ReasonFlag(cmd, &reason, true)
}

type mailingsResumed struct {
	CompanyID uuid.UUID `json:"companyId"`
	Company   string    `json:"company"`
	Resumed   bool      `json:"resumed"`
}

func (v mailingsResumed) WriteText(w io.Writer) {
	if !v.Resumed {
		fmt.Fprintf(w, "The mailings of %s are not paused by the reputation guard.\n", output.Printable(v.Company))
		return
	}
	fmt.Fprintf(w, "The mailings of %s continue. Only emails that are sent from now on count.\n", output.Printable(v.Company))
}

func ruleNames() []string {
	names := make([]string, 0, len(reputation.Rules()))
	for _, r := range reputation.Rules() {
		names = append(names, string(r))
	}
	return names
}

// parseReputation parses NAME=VALUE arguments.
func parseReputation(given []string) (reputation.Settings, error) {
	settings := reputation.Settings{Rules: make(map[reputation.Rule]*reputation.Thresholds)}
	for _, word := range given {
		name, text, found := strings.Cut(word, "=")
		rule := reputation.Rule(name)
		_, twice := settings.Rules[rule]
		switch {
		case !found:
			return settings, command.Usagef("%q is not NAME=VALUE, such as bounces_1h=8,15,500,50 or guard=off", word)
		case name == "guard" && settings.Guard != "", twice:
			return settings, command.Usagef("%s is given twice", name)
		case name == "guard":
			settings.Guard = reputation.Switch(text)
			if !slices.Contains([]reputation.Switch{reputation.On, reputation.Off, reputation.Default}, settings.Guard) {
				return settings, command.Usagef("guard=%s: the value must be on, off or default", text)
			}
		case !slices.Contains(reputation.Rules(), rule):
			return settings, command.Usagef("unknown rule %q: give guard, %s", name, strings.Join(ruleNames(), ", "))
		case text == "default":
			settings.Rules[rule] = nil
		default:
			var t reputation.Thresholds
			if err := t.UnmarshalText([]byte(text)); err != nil {
				return settings, command.Usagef("%s=%s: the value %s; or default", name, text, err)
			}
			settings.Rules[rule] = &t
		}
	}
	return settings, nil
}

type reputationView struct {
	CompanyID        uuid.UUID       `json:"companyId"`
	Company          string          `json:"company"`
	Enabled          bool            `json:"enabled"`
	OwnSetting       bool            `json:"ownSetting"`
	MailingsPausedAt *time.Time      `json:"mailingsPausedAt,omitempty"`
	Pause            json.RawMessage `json:"pause"`
	CountsFrom       time.Time       `json:"countsFrom"`
	CheckedAt        *time.Time      `json:"checkedAt,omitempty"`
	Rules            []ruleView      `json:"rules"`
}

// ruleView is a rule with the company's numbers.
type ruleView struct {
	Rule         reputation.Rule `json:"rule"`
	Own          bool            `json:"own"`
	Sent         int             `json:"sent"`
	Events       int             `json:"events"`
	RatePercent  float64         `json:"ratePercent"`
	WarnPercent  float64         `json:"warnPercent"`
	PausePercent float64         `json:"pausePercent"`
	MinSent      int             `json:"minSent"`
	MinEvents    int             `json:"minEvents"`
}

func viewReputation(ctx context.Context, s *store.Store, company tenant.Company) (output.Result, error) {
	found, err := reputationOf(s).Find(ctx, company.ID)
	if err != nil {
		return nil, err
	}
	v := reputationView{
		CompanyID: company.ID, Company: company.Name, Enabled: found.Enabled, OwnSetting: found.OwnEnabled,
		MailingsPausedAt: found.PausedAt, Pause: found.Pause, CountsFrom: found.CountsFrom.UTC(), CheckedAt: found.CheckedAt,
	}
	for _, r := range found.Rules {
		v.Rules = append(v.Rules, ruleView{
			Rule: r.Rule, Own: r.Own, Sent: r.Measured.Sent, Events: r.Measured.Events, RatePercent: r.Measured.Rate().Percent(),
			WarnPercent: r.Warn.Percent(), PausePercent: r.Pause.Percent(), MinSent: r.MinSent, MinEvents: r.MinEvents,
		})
	}
	return v, nil
}

func (v reputationView) WriteText(w io.Writer) {
	fmt.Fprintf(w, "%s\n\n", output.Printable(v.Company))
	state := "on"
	if !v.Enabled {
		state = "off"
	}
	if v.OwnSetting {
		state += " (company reputation set)"
	}
	rows := [][]string{{"guard", state}, {"mailings", "not paused"}}
	if v.MailingsPausedAt != nil {
		rows[1][1] = "paused since " + output.Timestamp(*v.MailingsPausedAt) + v.reason()
	}
	if v.CheckedAt != nil {
		rows = append(rows, []string{"last check", output.Timestamp(*v.CheckedAt)})
	}
	output.Table(w, "  ", rows)
	fmt.Fprintln(w)
	rows = [][]string{{"RULE", "SENT", "EVENTS", "RATE", "WARNS AT", "PAUSES AT", "MIN. SENT", "MIN. EVENTS", "SET BY"}}
	for _, r := range v.Rules {
		by := "installation"
		if r.Own {
			by = "company reputation set"
		}
		rows = append(rows, []string{
			string(r.Rule), output.Thousands(r.Sent), output.Thousands(r.Events), percent(r.RatePercent), percent(r.WarnPercent), percent(r.PausePercent),
			output.Thousands(r.MinSent), output.Thousands(r.MinEvents), by,
		})
	}
	output.Table(w, "  ", rows)
}

// reason says why the mailings were paused.
func (v reputationView) reason() string {
	var f reputation.Finding
	if json.Unmarshal(v.Pause, &f) != nil || f.Rule == "" {
		return ""
	}
	return fmt.Sprintf(": %s, %s of %s emails, %s", f.Rule, output.Thousands(f.Events), output.Thousands(f.Sent), percent(f.RatePercent))
}

func percent(p float64) string { return fmt.Sprintf("%g %%", p) }
