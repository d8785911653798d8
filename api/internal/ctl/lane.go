package ctl

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"email-gateway/shared/email"
	"email-gateway/shared/store"
)

// laneLimit bounds one list: every mailing ever uploaded has a lane.
const laneLimit = 1000

func (c *control) lane() *cobra.Command {
	cmd := group("lane", "Pause, resume and list lanes (queues of one company)",
		`A lane holds the emails of one company that wait for one queue; each mailing has its own
lane. A lane that an operator paused stays paused until an operator resumes it, independent
of the tenant's own pause and resume of a mailing.`,
		`  gatewayctl lane pause --company Acme --reason 'complaints above 0.1 %'
  gatewayctl lane pause --all --reason 'SES asked us to stop'
  gatewayctl lane resume --all`)
	cmd.AddCommand(c.lanePause(), c.laneResume(), c.laneList())
	return cmd
}

// laneChoice selects lanes by flags.
type laneChoice struct {
	company, mailing, queue string
	all                     bool
}

func (c *control) laneFlags(cmd *cobra.Command, l *laneChoice) *cobra.Command {
	flags := cmd.Flags()
	flags.StringVar(&l.company, "company", "", "the lanes of this `COMPANY` (id or exact name)")
	flags.StringVar(&l.mailing, "mailing", "", "only the lane of the mailing with this `ID`")
	flags.StringVar(&l.queue, "queue", "", "only the lanes of this `QUEUE`")
	complete(cmd, "queue", queues())
	c.completeCompanyFlag(cmd)
	return cmd
}

func (l *laneChoice) allFlag(cmd *cobra.Command) *cobra.Command {
	cmd.Flags().BoolVar(&l.all, "all", false, "all emails of all companies, including future companies and mailings")
	return cmd
}

func queues() []string { return slices.Concat(email.Queues(), email.BulkQueues()) }

// check validates the flags that need no database.
func (l *laneChoice) check() (store.LaneFilter, error) {
	f := store.LaneFilter{Queue: l.queue}
	if l.queue != "" && !slices.Contains(queues(), l.queue) {
		return f, usagef("--queue %q must be one of %s", l.queue, strings.Join(queues(), ", "))
	}
	if l.mailing != "" {
		id, err := uuid.Parse(l.mailing)
		if err != nil {
			return f, usagef("--mailing %q is not a mailing id", l.mailing)
		}
		f.Mailing = uuid.NullUUID{UUID: id, Valid: true}
	}
	return f, nil
}

// only is check for a command that changes lanes: the selection must be explicit.
func (l *laneChoice) only() (store.LaneFilter, error) {
	switch narrowed := l.company != "" || l.mailing != "" || l.queue != ""; {
	case l.all && narrowed:
		return store.LaneFilter{}, usagef("--all selects every lane: it cannot be combined with --company, --mailing or --queue")
	case !l.all && l.company == "":
		return store.LaneFilter{}, usagef("give --company COMPANY or --all")
	}
	return l.check()
}

func (c *control) lanePause() *cobra.Command {
	var chosen laneChoice
	var reason string
	cmd := &cobra.Command{
		Use:   "pause (--company COMPANY [--mailing ID] [--queue QUEUE] | --all) --reason REASON",
		Short: "Pause some or all lanes",
		Long: `Pauses the lanes: their waiting emails are not sent. Emails that a worker is already
processing are still sent. No email is lost: the lanes continue when they are resumed, except
for emails whose deadline has passed by then.

With --company, it pauses the lanes that the company has now; a mailing uploaded later is
sent (gatewayctl company suspend stops everything of a company). With --all, it stops all
sending at the provider's circuit breaker, for every company.

Pausing a paused lane changes the reason and keeps the time.`,
		Example: `  gatewayctl lane pause --company Acme --queue email:send:low --reason 'too many bounces'
  gatewayctl lane pause --all --reason 'SES asked us to stop'`,
		Args: exactArgs(),
		RunE: c.run(func(ctx context.Context, s *store.Store, _ []string) (answer, error) {
			by, err := c.operatorWithReason(reason)
			if err != nil {
				return nil, err
			}
			f, err := chosen.only()
			if err != nil {
				return nil, err
			}
			if chosen.all {
				return changeGate(ctx, s, "All sending is paused: "+printable(by.Reason)+".\nTo resume it: gatewayctl lane resume --all",
					func() error { return s.HoldGate(ctx, by) })
			}
			return changeLanes(ctx, s, chosen.company, f, "paused", func(company store.Company) (int, error) {
				return s.HoldLanes(ctx, by, company.ID, f)
			})
		}),
	}
	return auditReasonFlag(chosen.allFlag(c.laneFlags(cmd, &chosen)), &reason, true)
}

func (c *control) laneResume() *cobra.Command {
	var chosen laneChoice
	var reason string
	cmd := &cobra.Command{
		Use:   "resume (--company COMPANY [--mailing ID] [--queue QUEUE] | --all)",
		Short: "Resume paused lanes",
		Long: `Undoes gatewayctl lane pause. A mailing that its tenant paused stays paused, and so does a
lane of a suspended company. --all undoes only lane pause --all: lanes that were paused
individually stay paused.`,
		Example: "  gatewayctl lane resume --company Acme\n  gatewayctl lane resume --all",
		Args:    exactArgs(),
		RunE: c.run(func(ctx context.Context, s *store.Store, _ []string) (answer, error) {
			by, err := c.operatorIdentity(reason)
			if err != nil {
				return nil, err
			}
			f, err := chosen.only()
			if err != nil {
				return nil, err
			}
			if chosen.all {
				return changeGate(ctx, s, "Sending is no longer paused.", func() error { return s.ReleaseGate(ctx, by) })
			}
			return changeLanes(ctx, s, chosen.company, f, "resumed", func(company store.Company) (int, error) {
				return s.ReleaseLanes(ctx, by, company.ID, f)
			})
		}),
	}
	return auditReasonFlag(chosen.allFlag(c.laneFlags(cmd, &chosen)), &reason, false)
}

// lanesChanged is the result of pausing or resuming lanes.
type lanesChanged struct {
	Company string       `json:"company"`
	Changed int          `json:"changed"`
	Lanes   []store.Lane `json:"lanes"` // all selected lanes
	done    string
}

func changeLanes(
	ctx context.Context, s *store.Store, given string, f store.LaneFilter, done string, change func(store.Company) (int, error),
) (answer, error) {
	company, err := findCompany(ctx, s, given)
	if err != nil {
		return nil, err
	}
	f.Company = uuid.NullUUID{UUID: company.ID, Valid: true}
	n, err := change(company)
	if err != nil {
		return nil, err
	}
	lanes, err := s.Lanes(ctx, f, laneLimit)
	switch {
	case err != nil:
		return nil, err
	case len(lanes) == 0:
		return nil, errors.New("no lane matches: run `gatewayctl lane list --company " + shellWord(company.Name) + "` to see the company's lanes")
	}
	return lanesChanged{Company: company.Name, Changed: n, Lanes: lanes, done: done}, nil
}

func (v lanesChanged) text(w io.Writer) {
	if v.Changed == 0 {
		fmt.Fprintf(w, "Nothing changed: the lanes of %s were already %s.\n\n", printable(v.Company), v.done)
	} else {
		fmt.Fprintf(w, "%s of %s %s.\n\n", plural(v.Changed, "lane", "lanes"), printable(v.Company), v.done)
	}
	laneTable(w, v.Lanes[:min(len(v.Lanes), lanesShown)])
	if more := len(v.Lanes) - lanesShown; more > 0 {
		fmt.Fprintf(w, "\nand %d more: gatewayctl lane list --company %s\n", more, shellWord(v.Company))
	}
}

// lanesShown is how many of the changed lanes are printed: every mailing has one; the five
// lanes of single emails and jobs come first.
const lanesShown = 20

// laneList is a list of lanes with the state of the circuit breaker.
type laneList struct {
	Gate  store.Gate   `json:"gate"`
	Lanes []store.Lane `json:"lanes"`
	all   bool         // not only blocked lanes
}

func (c *control) laneList() *cobra.Command {
	var chosen laneChoice
	cmd := &cobra.Command{
		Use:   "list [--company COMPANY] [--mailing ID] [--queue QUEUE]",
		Short: "List the lanes of a company, or all blocked lanes",
		Long: fmt.Sprintf(`With --company or --mailing, lists all matching lanes; otherwise lists the blocked lanes of
all companies. It shows at most %d lanes.`, laneLimit),
		Example: "  gatewayctl lane list\n  gatewayctl lane list --company Acme",
		Args:    exactArgs(),
		RunE: c.run(func(ctx context.Context, s *store.Store, _ []string) (answer, error) {
			f, err := chosen.check()
			if err != nil {
				return nil, err
			}
			f.NotOpen = chosen.company == "" && chosen.mailing == ""
			if chosen.company != "" {
				company, err := findCompany(ctx, s, chosen.company)
				if err != nil {
					return nil, err
				}
				f.Company = uuid.NullUUID{UUID: company.ID, Valid: true}
			}
			gate, err := s.Gate(ctx)
			if err != nil {
				return nil, err
			}
			lanes, err := s.Lanes(ctx, f, laneLimit)
			return laneList{Gate: gate, Lanes: append([]store.Lane{}, lanes...), all: !f.NotOpen}, err
		}),
	}
	return c.laneFlags(cmd, &chosen)
}

func (v laneList) text(w io.Writer) {
	if v.Gate.HeldAt != nil || v.Gate.State == store.GateShut {
		fmt.Fprintf(w, "%s\n\n", gateState(v.Gate))
	}
	switch {
	case len(v.Lanes) > 0:
		laneTable(w, v.Lanes)
	case v.all:
		fmt.Fprintln(w, "No lane matches.")
	default:
		fmt.Fprintln(w, "No lane is blocked.")
	}
}

func laneTable(w io.Writer, lanes []store.Lane) {
	rows := [][]string{{"COMPANY", "QUEUE", "MAILING", "STATE"}}
	for _, l := range lanes {
		mailing := "-"
		if l.MailingID != nil {
			mailing = l.MailingID.String()
		}
		rows = append(rows, []string{l.Company, l.Queue, mailing, laneState(l)})
	}
	table(w, "", rows)
}

func laneState(l store.Lane) string {
	var states []string
	if l.HeldAt != nil {
		states = append(states, "paused by an operator since "+stamp(*l.HeldAt)+": "+text(l.HeldReason))
	}
	if l.PausedAt != nil {
		states = append(states, "paused with its mailing since "+stamp(*l.PausedAt))
	}
	if l.ParkedUntil != nil {
		states = append(states, "parked until "+stamp(*l.ParkedUntil))
	}
	if len(states) == 0 {
		return "active"
	}
	return strings.Join(states, "; ")
}
