package lane

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"email-gateway/api/internal/ctl/breaker"
	"email-gateway/api/internal/ctl/command"
	"email-gateway/api/internal/ctl/operator"
	"email-gateway/api/internal/ctl/output"
	"email-gateway/shared/store"
	breakerstore "email-gateway/shared/store/breaker"
	lanestore "email-gateway/shared/store/lane"
)

// laneList is a list of lanes with the state of the circuit breaker.
type laneList struct {
	Breaker breakerstore.Breaker `json:"breaker"`
	Lanes   []lanestore.Lane     `json:"lanes"`
	More    bool                 `json:"more"`
	all     bool                 // not only blocked lanes
}

func listCommand(c *command.Invocation) *cobra.Command {
	var chosen laneChoice
	cmd := &cobra.Command{
		Use:   "list [--company COMPANY] [--mailing ID] [--queue QUEUE]",
		Short: "List the lanes of a company, or all blocked lanes",
		Long: fmt.Sprintf(`With --company or --mailing, lists all matching lanes; otherwise lists the blocked lanes of
all companies, without those of mailings that have ended. It shows at most %d lanes, those
that an operator has paused first.`, laneLimit),
		Example: "  gatewayctl lane list\n  gatewayctl lane list --company Acme",
		Args:    command.ExactArgs(),
		RunE: operator.Run(c, func(ctx context.Context, s *store.Store, _ []string) (output.Result, error) {
			f, err := chosen.check()
			if err != nil {
				return nil, err
			}
			f.NotOpen = chosen.company == "" && chosen.mailing == ""
			if chosen.company != "" {
				company, err := operator.FindCompany(ctx, s, chosen.company)
				if err != nil {
					return nil, err
				}
				f.Company = uuid.NullUUID{UUID: company.ID, Valid: true}
			}
			b, err := s.Breaker(ctx)
			if err != nil {
				return nil, err
			}
			lanes, err := s.Lanes(ctx, f, laneLimit+1)
			shown := min(len(lanes), laneLimit)
			return laneList{Breaker: b, Lanes: append([]lanestore.Lane{}, lanes[:shown]...), More: shown < len(lanes), all: !f.NotOpen}, err
		}),
	}
	return addFlags(c, cmd, &chosen)
}

func (v laneList) WriteText(w io.Writer) {
	if v.Breaker.HeldAt != nil || v.Breaker.IsOpen {
		fmt.Fprintf(w, "%s\n\n", breaker.State(v.Breaker))
	}
	switch {
	case len(v.Lanes) > 0:
		laneTable(w, v.Lanes)
	case v.all:
		fmt.Fprintln(w, "No lane matches.")
	default:
		fmt.Fprintln(w, "No lane is blocked.")
	}
	if v.More {
		fmt.Fprintf(w, "Only the first %d lanes are shown.\n", laneLimit)
	}
}

func laneTable(w io.Writer, lanes []lanestore.Lane) {
	rows := [][]string{{"COMPANY", "QUEUE", "MAILING", "STATE"}}
	for _, l := range lanes {
		mailing := "-"
		if l.MailingID != nil {
			mailing = l.MailingID.String()
		}
		rows = append(rows, []string{l.Company, l.Queue, mailing, laneState(l)})
	}
	output.Table(w, "", rows)
}

func laneState(l lanestore.Lane) string {
	var states []string
	if l.HeldAt != nil {
		states = append(states, "paused by an operator since "+output.Timestamp(*l.HeldAt)+": "+output.Optional(l.HeldReason))
	}
	if l.PausedAt != nil {
		states = append(states, "mailing paused since "+output.Timestamp(*l.PausedAt))
	}
	if l.ParkedUntil != nil {
		states = append(states, "parked until "+output.Timestamp(*l.ParkedUntil))
	}
	if len(states) == 0 {
		return "active"
	}
	return strings.Join(states, "; ")
}
