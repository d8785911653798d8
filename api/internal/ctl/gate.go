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
	cmd := group("gate", "Show the brake before the provider",
		`All workers share one gate. They shut it when the provider takes no email any more,
whichever comes next: a paused account, wrong credentials, a spent daily quota, an
outage. Then one email every 5 s asks, and opens it again. Operators hold it with
gatewayctl lane pause --all; no probe opens that.`,
		"  gatewayctl gate show")
	cmd.AddCommand(c.gateShow())
	return cmd
}

// gateView is the gate, after what was done.
type gateView struct {
	store.Gate
	done string // a sentence
}

func (c *control) gateShow() *cobra.Command {
	return &cobra.Command{
		Use: "show", Short: "Show whether emails pass to the provider, and why not",
		Example: "  gatewayctl gate show",
		Args:    needs(),
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
	rows := [][]string{{"state", string(v.State) + " since " + stamp(v.Since)}}
	if v.HeldAt != nil {
		rows = append(rows, []string{"held since", stamp(*v.HeldAt) + ": " + text(v.HeldReason)})
	}
	if v.ProbeAt != nil && v.ProbeID != nil {
		rows = append(rows, []string{"last probe", stamp(*v.ProbeAt) + ", email " + v.ProbeID.String()})
	}
	if v.ChangedBy != nil {
		rows = append(rows, []string{"by", *v.ChangedBy})
	}
	table(w, "  ", append(rows, []string{"shut so far", strconv.FormatInt(v.Shuts, 10)}))
}

// gateState is one sentence.
func gateState(g store.Gate) string {
	switch {
	case g.HeldAt != nil:
		return "No email passes: an operator holds all of them back since " + stamp(*g.HeldAt) + ": " + printable(text(g.HeldReason)) + "."
	case g.State == store.GateShut:
		return "The provider takes no email since " + stamp(g.Since) + ": " + text(g.Reason) + ". A probe every 5 s asks whether it does again."
	}
	return "Emails pass to the provider."
}
