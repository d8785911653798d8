// Package lane implements gatewayctl lane: operators pause and resume lanes, the queues of one
// company.
package lane

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"email-gateway/api/internal/ctl/breaker"
	"email-gateway/api/internal/ctl/command"
	"email-gateway/api/internal/ctl/operator"
	"email-gateway/api/internal/ctl/output"
	"email-gateway/shared/email"
	"email-gateway/shared/store"
	lanestore "email-gateway/shared/store/lane"
	"email-gateway/shared/store/tenant"
)

// laneLimit bounds one list: every mailing ever uploaded has a lane.
const laneLimit = 1000

// Command returns the command `gatewayctl lane` with its subcommands.
func Command(c *command.Invocation) *cobra.Command {
	cmd := command.Group("lane", "Pause, resume and list lanes (queues of one company)",
		`A lane holds the emails of one company that wait for one queue; each mailing has its own
lane. A lane that an operator paused stays paused until an operator resumes it, independent
of the tenant's own pause and resume of a mailing.`,
		`  gatewayctl lane pause --company Acme --reason 'complaints above 0.1 %'
  gatewayctl lane pause --all --reason 'SES asked us to stop'
  gatewayctl lane resume --all`)
	cmd.AddCommand(pauseCommand(c), resumeCommand(c), listCommand(c))
	return cmd
}

// laneChoice selects lanes by flags.
type laneChoice struct {
	company, mailing, queue string
	all                     bool
}

func addFlags(c *command.Invocation, cmd *cobra.Command, l *laneChoice) *cobra.Command {
	flags := cmd.Flags()
	flags.StringVar(&l.company, "company", "", "the lanes of this `COMPANY` (id or exact name)")
	flags.StringVar(&l.mailing, "mailing", "", "only the lane of the mailing with this `ID`")
	flags.StringVar(&l.queue, "queue", "", "only the lanes of this `QUEUE`")
	command.CompleteFlag(cmd, "queue", queues())
	operator.CompleteCompanyFlag(c, cmd)
	return cmd
}

func (l *laneChoice) allFlag(cmd *cobra.Command) *cobra.Command {
	cmd.Flags().BoolVar(&l.all, "all", false, "all emails of all companies, including future companies and mailings")
	return cmd
}

func queues() []string { return slices.Concat(email.Queues(), email.BulkQueues()) }

// check validates the flags that need no database.
func (l *laneChoice) check() (lanestore.Filter, error) {
	f := lanestore.Filter{Queue: l.queue}
	if l.queue != "" && !slices.Contains(queues(), l.queue) {
		return f, command.Usagef("--queue %q must be one of %s", l.queue, strings.Join(queues(), ", "))
	}
	if l.mailing != "" {
		id, err := uuid.Parse(l.mailing)
		if err != nil {
			return f, command.Usagef("--mailing %q is not a mailing id", l.mailing)
		}
		f.Mailing = uuid.NullUUID{UUID: id, Valid: true}
	}
	return f, nil
}

// only is check for a command that changes lanes: the selection must be explicit.
func (l *laneChoice) only() (lanestore.Filter, error) {
	switch narrowed := l.company != "" || l.mailing != "" || l.queue != ""; {
	case l.all && narrowed:
		return lanestore.Filter{}, command.Usagef("--all selects every lane: it cannot be combined with --company, --mailing or --queue")
	case !l.all && l.company == "":
		return lanestore.Filter{}, command.Usagef("give --company COMPANY or --all")
	}
	return l.check()
}

func pauseCommand(c *command.Invocation) *cobra.Command {
	var chosen laneChoice
	var reason string
	var yes bool
	cmd := &cobra.Command{
		Use:   "pause (--company COMPANY [--mailing ID] [--queue QUEUE] | --all) --reason REASON",
		Short: "Pause some or all lanes",
		Long: `Pauses the lanes: their waiting emails are not sent. Emails that a worker is already
processing are still sent. No email is lost: the lanes continue when they are resumed, except
for emails whose deadline has passed by then.

With --company, it pauses the lanes that the company has now; a mailing uploaded later is
sent (gatewayctl company suspend stops everything of a company). With --all, it stops all
sending at the provider's circuit breaker, for every company.

A pause has one reason. Lanes that are paused for another reason stay so, and are listed; if
all of them are, the command fails. So does --all if all sending is paused for another
reason. With --yes, the new reason replaces the others, and the time is kept.`,
		Example: `  gatewayctl lane pause --company Acme --queue email:send:low --reason 'too many bounces'
  gatewayctl lane pause --all --reason 'SES asked us to stop'`,
		Args: command.ExactArgs(),
		RunE: operator.Run(c, func(ctx context.Context, s *store.Store, _ []string) (output.Result, error) {
			by, err := operator.IdentityWithReason(c, reason)
			if err != nil {
				return nil, err
			}
			f, err := chosen.only()
			if err != nil {
				return nil, err
			}
			if chosen.all {
				return breaker.Change(ctx, s, "All sending is paused: "+output.Printable(by.Reason)+".\nTo resume it: gatewayctl lane resume --all",
					func() ([]lanestore.Hold, error) {
						before, err := s.HoldBreaker(ctx, by, yes)
						return before, withHolds(err, "with --yes, your reason replaces it")
					})
			}
			others := "Still, for another reason"
			if yes {
				others = "Replaced"
			}
			return changeLanes(ctx, s, chosen.company, f, "paused", others, func(company tenant.Company) (lanestore.Changed, error) {
				done, err := s.HoldLanes(ctx, by, company.ID, f, yes)
				return done, withHolds(err, "with --yes, your reason replaces it")
			})
		}),
	}
	cmd.Flags().BoolVar(&yes, "yes", false, "replace the reasons of lanes that are paused already")
	return operator.ReasonFlag(chosen.allFlag(addFlags(c, cmd, &chosen)), &reason, true)
}

// withHolds returns the error of a change that needs a decision about the pauses in force, with each of them.
func withHolds(err error, advice string) error {
	var held *lanestore.HeldError
	if !errors.As(err, &held) {
		return err
	}
	var paused []string
	for _, h := range held.Holds {
		paused = append(paused, breaker.Paused(h)+lanesOf(h))
	}
	return fmt.Errorf("%s (nothing was changed): %s", strings.Join(paused, "; "), advice)
}

// lanesOf returns how many lanes a pause holds; "" for that of all sending.
func lanesOf(h lanestore.Hold) string {
	if h.Lanes == 0 {
		return ""
	}
	return " (" + output.Plural(h.Lanes, "lane", "lanes") + ")"
}

func resumeCommand(c *command.Invocation) *cobra.Command {
	var chosen laneChoice
	var reason, pausedFor string
	var yes bool
	cmd := &cobra.Command{
		Use:   "resume (--company COMPANY [--mailing ID] [--queue QUEUE] | --all)",
		Short: "Resume paused lanes",
		Long: `Undoes gatewayctl lane pause. A mailing that its tenant paused stays paused, and so does a
lane of a suspended company. --all undoes only lane pause --all: lanes that were paused
individually stay paused. It prints each pause that it ends. If lanes are paused for different
reasons, choose one with --paused-for, which fails if all have other reasons, or end all
with --yes.`,
		Example: "  gatewayctl lane resume --company Acme --paused-for 'too many bounces'\n  gatewayctl lane resume --all",
		Args:    command.ExactArgs(),
		RunE: operator.Run(c, func(ctx context.Context, s *store.Store, _ []string) (output.Result, error) {
			by, err := operator.Identity(c, reason)
			if err != nil {
				return nil, err
			}
			f, err := chosen.only()
			if err != nil {
				return nil, err
			}
			if chosen.all && pausedFor != "" {
				return nil, command.Usagef("--paused-for chooses lanes of a company: it cannot be combined with --all")
			}
			if chosen.all {
				return breaker.Change(ctx, s, "Sending is no longer paused.", func() ([]lanestore.Hold, error) { return s.ReleaseBreaker(ctx, by) })
			}
			return changeLanes(ctx, s, chosen.company, f, "resumed", "Ended", func(company tenant.Company) (lanestore.Changed, error) {
				done, err := s.ReleaseLanes(ctx, by, company.ID, f, pausedFor, yes)
				return done, withHolds(err, "choose one reason with --paused-for, or --yes to end all")
			})
		}),
	}
	cmd.Flags().StringVar(&pausedFor, "paused-for", "", "only lanes that were paused for this `REASON`")
	cmd.Flags().BoolVar(&yes, "yes", false, "end pauses for different reasons")
	return operator.ReasonFlag(chosen.allFlag(addFlags(c, cmd, &chosen)), &reason, false)
}

// lanesChanged is the result of pausing or resuming lanes.
type lanesChanged struct {
	Company string           `json:"company"`
	Changed int              `json:"changed"`
	Before  []lanestore.Hold `json:"before,omitempty"` // the pauses that were ended, or had another reason
	Lanes   []lanestore.Lane `json:"lanes"`            // all selected lanes
	done    string
	before  string // what the pauses in Before are
}

func changeLanes(
	ctx context.Context, s *store.Store, given string, f lanestore.Filter, done, before string, change func(tenant.Company) (lanestore.Changed, error),
) (output.Result, error) {
	company, err := operator.FindCompany(ctx, s, given)
	if err != nil {
		return nil, err
	}
	f.Company = uuid.NullUUID{UUID: company.ID, Valid: true}
	changed, err := change(company)
	if err != nil {
		return nil, err
	}
	lanes, err := s.Lanes(ctx, f, laneLimit)
	switch {
	case err != nil:
		return nil, err
	case len(lanes) == 0:
		return nil, errors.New("no lane matches: run `gatewayctl lane list --company " + output.ShellWord(company.Name) + "` to see the company's lanes")
	}
	return lanesChanged{Company: company.Name, Changed: changed.Lanes, Before: changed.Before, Lanes: lanes, done: done, before: before}, nil
}

func (v lanesChanged) WriteText(w io.Writer) {
	if v.Changed == 0 {
		fmt.Fprintf(w, "Nothing changed: the lanes of %s were already %s.\n\n", output.Printable(v.Company), v.done)
	} else {
		fmt.Fprintf(w, "%s of %s %s.\n", output.Plural(v.Changed, "lane", "lanes"), output.Printable(v.Company), v.done)
		for _, h := range v.Before {
			fmt.Fprintf(w, "%s: %s%s.\n", v.before, breaker.Paused(h), lanesOf(h))
		}
		fmt.Fprintln(w)
	}
	laneTable(w, v.Lanes[:min(len(v.Lanes), lanesShown)])
	if more := len(v.Lanes) - lanesShown; more > 0 {
		fmt.Fprintf(w, "\nand %d more: gatewayctl lane list --company %s\n", more, output.ShellWord(v.Company))
	}
}

// lanesShown is how many of the changed lanes are printed: every mailing has one; the five
// lanes of single emails and jobs come first.
const lanesShown = 20
