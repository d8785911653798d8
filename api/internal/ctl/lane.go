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

// laneLimit bounds what one list shows: every mailing ever uploaded has a lane.
const laneLimit = 1000

func (c *control) lane() *cobra.Command {
	cmd := group("lane", "Hold back what waits, or let it go on",
		`A lane is a line in which one company's emails wait for one queue; each of its mailings
has a lane of its own. A lane that an operator paused stays so until an operator
resumes it: the tenant's own pause and resume of a mailing stand beside that.`,
		`  gatewayctl lane pause --company Acme --reason 'complaints above 0.1 %'
  gatewayctl lane pause --all --reason 'SES asked us to stop'
  gatewayctl lane resume --all`)
	cmd.AddCommand(c.lanePause(), c.laneResume(), c.laneList())
	return cmd
}

// laneChoice is which lanes an operator means.
type laneChoice struct {
	company, mailing, queue string
	all                     bool
}

func (c *control) laneFlags(cmd *cobra.Command, l *laneChoice) *cobra.Command {
	flags := cmd.Flags()
	flags.StringVar(&l.company, "company", "", "the lanes of this `COMPANY`, by id or name")
	flags.StringVar(&l.mailing, "mailing", "", "only the lane of the mailing with this `ID`")
	flags.StringVar(&l.queue, "queue", "", "only the lanes of this `QUEUE`")
	complete(cmd, "queue", queues())
	c.completeCompanyFlag(cmd)
	return cmd
}

func (l *laneChoice) allFlag(cmd *cobra.Command) *cobra.Command {
	cmd.Flags().BoolVar(&l.all, "all", false, "every email of every company, those of companies and mailings to come too")
	return cmd
}

func queues() []string { return slices.Concat(email.Queues(), email.BulkQueues()) }

// check reads what can be understood without the database.
func (l *laneChoice) check() (store.LaneFilter, error) {
	f := store.LaneFilter{Queue: l.queue}
	if l.queue != "" && !slices.Contains(queues(), l.queue) {
		return f, usagef("--queue %q must be one of %s", l.queue, strings.Join(queues(), ", "))
	}
	if l.mailing != "" {
		id, err := uuid.Parse(l.mailing)
		if err != nil {
			return f, usagef("--mailing %q is not a mailing's id", l.mailing)
		}
		f.Mailing = uuid.NullUUID{UUID: id, Valid: true}
	}
	return f, nil
}

// only is check for a command that changes lanes: it must be told which.
func (l *laneChoice) only() (store.LaneFilter, error) {
	switch narrowed := l.company != "" || l.mailing != "" || l.queue != ""; {
	case l.all && narrowed:
		return store.LaneFilter{}, usagef("--all is every lane: it does not go with --company, --mailing or --queue")
	case !l.all && l.company == "":
		return store.LaneFilter{}, usagef("say which lanes: --company COMPANY, or --all")
	}
	return l.check()
}

func (c *control) lanePause() *cobra.Command {
	var chosen laneChoice
	var reason string
	cmd := &cobra.Command{
		Use:   "pause (--company COMPANY [--mailing ID] [--queue QUEUE] | --all) --reason REASON",
		Short: "Hold back what waits in some lanes, or in all",
		Long: `Holds back what waits in the lanes. What a worker has in its hands already is still
sent. Nothing is lost: it goes on when the lanes are resumed, unless its deadline has
passed by then.

With --company it pauses the lanes that the company has now: a mailing that is uploaded
later runs (gatewayctl company suspend holds back everything of a company). With --all
it holds the gate before the provider, so that no email of anybody passes.

Pausing what is paused changes the reason and keeps the time.`,
		Example: `  gatewayctl lane pause --company Acme --queue email:send:low --reason 'too many bounces'
  gatewayctl lane pause --all --reason 'SES asked us to stop'`,
		Args: needs(),
		RunE: c.run(func(ctx context.Context, s *store.Store, _ []string) (answer, error) {
			by, err := c.whoAndWhy(reason)
			if err != nil {
				return nil, err
			}
			f, err := chosen.only()
			if err != nil {
				return nil, err
			}
			if chosen.all {
				return changeGate(ctx, s, "Every email is held back: "+printable(by.Reason)+".\nTo take that back: gatewayctl lane resume --all",
					func() error { return s.HoldGate(ctx, by) })
			}
			return changeLanes(ctx, s, chosen.company, f, "paused", func(company store.Company) (int, error) {
				return s.HoldLanes(ctx, by, company.ID, f)
			})
		}),
	}
	return because(chosen.allFlag(c.laneFlags(cmd, &chosen)), &reason, true)
}

func (c *control) laneResume() *cobra.Command {
	var chosen laneChoice
	var reason string
	cmd := &cobra.Command{
		Use:   "resume (--company COMPANY [--mailing ID] [--queue QUEUE] | --all)",
		Short: "Let what was paused go on",
		Long: `Takes back what gatewayctl lane pause did. A mailing that its tenant paused stays paused,
and so does a lane of a suspended company. --all takes back --all: lanes that were
paused by themselves stay so.`,
		Example: "  gatewayctl lane resume --company Acme\n  gatewayctl lane resume --all",
		Args:    needs(),
		RunE: c.run(func(ctx context.Context, s *store.Store, _ []string) (answer, error) {
			by, err := c.who(reason)
			if err != nil {
				return nil, err
			}
			f, err := chosen.only()
			if err != nil {
				return nil, err
			}
			if chosen.all {
				return changeGate(ctx, s, "No operator holds back all emails any more.", func() error { return s.ReleaseGate(ctx, by) })
			}
			return changeLanes(ctx, s, chosen.company, f, "resumed", func(company store.Company) (int, error) {
				return s.ReleaseLanes(ctx, by, company.ID, f)
			})
		}),
	}
	return because(chosen.allFlag(c.laneFlags(cmd, &chosen)), &reason, false)
}

// lanesChanged is what became of some lanes of a company.
type lanesChanged struct {
	Company string       `json:"company"`
	Changed int          `json:"changed"`
	Lanes   []store.Lane `json:"lanes"` // those that were meant
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
		return nil, errors.New("there is no such lane: `gatewayctl lane list --company " + shellWord(company.Name) + "` shows the company's")
	}
	return lanesChanged{Company: company.Name, Changed: n, Lanes: lanes, done: done}, nil
}

func (v lanesChanged) text(w io.Writer) {
	if v.Changed == 0 {
		fmt.Fprintf(w, "It was so before: no lane of %s had to be %s.\n\n", printable(v.Company), v.done)
	} else {
		fmt.Fprintf(w, "%s of %s %s.\n\n", plural(v.Changed, "lane", "lanes"), printable(v.Company), v.done)
	}
	laneTable(w, v.Lanes[:min(len(v.Lanes), lanesTold)])
	if more := len(v.Lanes) - lanesTold; more > 0 {
		fmt.Fprintf(w, "\nand %d more: gatewayctl lane list --company %s\n", more, shellWord(v.Company))
	}
}

// lanesTold is how many lanes are told of that were changed: every mailing has one, and
// the five of single emails and jobs come first.
const lanesTold = 20

// laneList is some lanes, and the gate behind all of them.
type laneList struct {
	Gate  store.Gate   `json:"gate"`
	Lanes []store.Lane `json:"lanes"`
	all   bool         // and not only those that something holds back
}

func (c *control) laneList() *cobra.Command {
	var chosen laneChoice
	cmd := &cobra.Command{
		Use:   "list [--company COMPANY] [--mailing ID] [--queue QUEUE]",
		Short: "List the lanes of a company, or all that something holds back",
		Long: fmt.Sprintf(`With --company or --mailing it lists all lanes that are meant, else those of anybody that
something holds back. It shows %d lanes at most.`, laneLimit),
		Example: "  gatewayctl lane list\n  gatewayctl lane list --company Acme",
		Args:    needs(),
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
		fmt.Fprintln(w, "There is no such lane.")
	default:
		fmt.Fprintln(w, "No lane is held back.")
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
		return "open"
	}
	return strings.Join(states, "; ")
}
