package ctl

import (
	"context"
	"fmt"
	"io"
	"strconv"

	"github.com/spf13/cobra"

	"email-gateway/shared/store"
)

func (c *control) gate() *cobra.Command {
	cmd := group("breaker", "Show the circuit breaker of the email provider",
		`All workers share one circuit breaker. They open it when the provider accepts no
email at all: the account is paused, the credentials are wrong, the daily quota is used up,
or there is an outage. Then one probe email is sent every 5 s; when one succeeds, the circuit
breaker closes. Operators stop all sending with gatewayctl lane pause --all; probes do not
undo that.`,
		"  gatewayctl breaker show")
	cmd.Aliases = []string{"gate"} // the name in the previous release
	cmd.AddCommand(c.gateShow())
	return cmd
}

// gateView is the state of the circuit breaker, after a change if done is set.
type gateView struct {
	store.Gate
	done string // a sentence
}

func (c *control) gateShow() *cobra.Command {
	return &cobra.Command{
		Use: "show", Short: "Show whether emails are sent to the provider, and if not, why",
		Example: "  gatewayctl breaker show",
		Args:    exactArgs(),
		RunE: c.run(func(ctx context.Context, s *store.Store, _ []string) (answer, error) {
			return changeGate(ctx, s, "", func() error { return nil })
		}),
	}
}

func changeGate(ctx context.Context, s *store.Store, done string, change func() error) (answer, error) {
	if err := change(); err != nil {
		return nil, err
	}
	gate, err := s.Gate(ctx)
	return gateView{Gate: gate, done: done}, err
}

func (v gateView) text(w io.Writer) {
	if v.done != "" {
		fmt.Fprintf(w, "%s\n\n", v.done)
	}
	fmt.Fprintln(w, gateState(v.Gate))
	fmt.Fprintln(w)
	state := "closed"
	if v.State == store.GateShut {
		state = "open"
	}
	rows := [][]string{{"state", state + " since " + stamp(v.Since)}}
	if v.HeldAt != nil {
		rows = append(rows, []string{"paused since", stamp(*v.HeldAt) + ": " + text(v.HeldReason)})
	}
	if v.ProbeAt != nil && v.ProbeID != nil {
		rows = append(rows, []string{"last probe", stamp(*v.ProbeAt) + ", email " + v.ProbeID.String()})
	}
	if v.ChangedBy != nil {
		rows = append(rows, []string{"by", *v.ChangedBy})
	}
	table(w, "  ", append(rows, []string{"times opened", strconv.FormatInt(v.Shuts, 10)}))
}

// gateState summarizes the state in one sentence.
func gateState(g store.Gate) string {
	switch {
	case g.HeldAt != nil:
		return "No email is sent: an operator has paused all sending since " + stamp(*g.HeldAt) + ": " + printable(text(g.HeldReason)) + "."
	case g.State == store.GateShut:
		return "The circuit breaker has been open since " + stamp(g.Since) + ": " + text(g.Reason) + ". One probe email is sent every 5 s; when one succeeds, it closes."
	}
	return "The circuit breaker is closed: emails are sent."
}
