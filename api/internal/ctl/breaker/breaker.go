// Package breaker implements gatewayctl breaker, which shows operators the circuit breaker of
// the email provider.
package breaker

import (
	"context"
	"fmt"
	"io"
	"strconv"

	"github.com/spf13/cobra"

	"email-gateway/api/internal/ctl/command"
	"email-gateway/api/internal/ctl/operator"
	"email-gateway/api/internal/ctl/output"
	"email-gateway/shared/store"
	breakerstore "email-gateway/shared/store/breaker"
	"email-gateway/shared/store/lane"
)

// Command returns the command `gatewayctl breaker` with its subcommands.
func Command(c *command.Invocation) *cobra.Command {
	cmd := command.Group("breaker", "Show the circuit breaker of the email provider",
		`All workers share one circuit breaker. They open it when the provider accepts no
email at all: the account is paused, the credentials are wrong, the daily quota is used up,
or there is an outage. Then one probe email is sent every 5 s; when one succeeds, the circuit
breaker closes. Operators stop all sending with gatewayctl lane pause --all; probes do not
undo that.`,
		"  gatewayctl breaker show")
	cmd.Aliases = []string{"gate"} // the name in the previous release
	cmd.AddCommand(showCommand(c))
	return cmd
}

// breakerView is the state of the circuit breaker, after a change if done is set.
type breakerView struct {
	breakerstore.Breaker
	Before []lane.Hold `json:"before,omitempty"` // the hold that was replaced or ended
	done   string      // a sentence
}

func showCommand(c *command.Invocation) *cobra.Command {
	return &cobra.Command{
		Use: "show", Short: "Show whether emails are sent to the provider, and if not, why",
		Example: "  gatewayctl breaker show",
		Args:    command.ExactArgs(),
		RunE: operator.Run(c, func(ctx context.Context, s *store.Store, _ []string) (output.Result, error) {
			return Change(ctx, s, "", func() ([]lane.Hold, error) { return nil, nil })
		}),
	}
}

// Change changes the circuit breaker and returns its state, which is printed after the sentence
// done.
func Change(ctx context.Context, s *store.Store, done string, change func() (before []lane.Hold, err error)) (output.Result, error) {
	before, err := change()
	if err != nil {
		return nil, err
	}
	b, err := s.Breaker(ctx)
	return breakerView{Breaker: b, Before: before, done: done}, err
}

func (v breakerView) WriteText(w io.Writer) {
	if v.done != "" {
		fmt.Fprintf(w, "%s\n", v.done)
		for _, h := range v.Before {
			fmt.Fprintf(w, "It had been %s.\n", Paused(h))
		}
		fmt.Fprintln(w)
	}
	fmt.Fprintln(w, State(v.Breaker))
	fmt.Fprintln(w)
	state := "closed"
	if v.IsOpen {
		state = "open"
	}
	rows := [][]string{{"state", state + " since " + output.Timestamp(v.Since)}}
	if v.HeldAt != nil {
		rows = append(rows, []string{"paused since", output.Timestamp(*v.HeldAt) + ": " + output.Optional(v.HeldReason)})
	}
	if v.ProbeAt != nil && v.ProbeID != nil {
		rows = append(rows, []string{"last probe", output.Timestamp(*v.ProbeAt) + ", email " + v.ProbeID.String()})
	}
	if v.ChangedBy != nil {
		rows = append(rows, []string{"by", *v.ChangedBy})
	}
	output.Table(w, "  ", append(rows, []string{"times opened", strconv.FormatInt(v.Openings, 10)}))
}

// Paused describes a pause by an operator.
func Paused(h lane.Hold) string {
	return "paused since " + output.Timestamp(h.Since) + ": " + output.Printable(h.Reason)
}

// State summarizes the state in one sentence.
func State(g breakerstore.Breaker) string {
	switch {
	case g.HeldAt != nil:
		return "No email is sent: an operator has paused all sending since " + output.Timestamp(*g.HeldAt) + ": " + output.Printable(output.Optional(g.HeldReason)) + "."
	case g.IsOpen:
		return "The circuit breaker has been open since " + output.Timestamp(g.Since) + ": " + output.Optional(g.Reason) + ". One probe email is sent every 5 s; when one succeeds, it closes."
	}
	return "The circuit breaker is closed: emails are sent."
}
