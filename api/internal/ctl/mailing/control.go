package mailing

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"email-gateway/api/internal/client"
	"email-gateway/api/internal/ctl/command"
	"email-gateway/api/internal/ctl/output"
	"email-gateway/api/internal/ctl/tenant"
)

// mailingStep is an action on a mailing. Its name is that of the command and of the route;
// done is its past participle.
type mailingStep struct {
	name, short, long, done string
}

func controlCommands(c *command.Invocation) []*cobra.Command {
	all := []*cobra.Command{moveCommand(c)}
	for _, s := range []mailingStep{
		{
			"start", "Start a mailing that was created with --hold", "Starts a mailing that was created with --hold and has not run yet.",
			"started",
		},
		{
			"pause", "Pause a mailing", `Pauses the mailing within a second: emails not yet passed to SES are not sent. Nothing is
lost. An email that was tried keeps its deadline; the others have none until they are tried. A
mailing that stays paused keeps its data.`,
			"paused",
		},
		{
			"resume", "Resume a paused mailing, or retry a failed one", "Continues a paused mailing where it stopped, or retries the job of a failed one.",
			"resumed",
		},
		{
			"cancel", "Cancel a mailing permanently", `Cancels a mailing: no further email is sent, and waiting emails become CANCELLED. Emails that
SES has accepted are not recalled. This cannot be undone.`,
			"cancelled",
		},
		{
			"retry-failed", "Retry the failed and expired emails of a mailing", `Retries the failed and expired emails of the mailing with all their tries. Emails that SES may
have accepted (outcome unknown) are not retried.`,
			"scheduled again",
		},
	} {
		all = append(all, mailingControl(c, s))
	}
	return all
}

func mailingControl(c *command.Invocation, s mailingStep) *cobra.Command {
	return &cobra.Command{
		Use: s.name + " ID", Short: s.short, Long: s.long,
		Example: "  gatewayctl mailing " + s.name + " 01a1fe26-7c3d-7e4f-8a5b-6c7d8e9f0a1b",
		Args:    command.ExactArgs("ID"), ValidArgsFunction: completeMailings(c),
		RunE: tenant.Run(c, func(ctx context.Context, api *client.Client, args []string) (output.Result, error) {
			id, err := parseMailing(args[0])
			if err != nil {
				return nil, err
			}
			v := controlledMailing{done: s.done, mailingView: mailingView{now: time.Now()}}
			err = api.PostStep(ctx, mailingPath+"/"+id.String()+"/"+s.name, &v.mailingView)
			return v, err
		}),
	}
}

func moveCommand(c *command.Invocation) *cobra.Command {
	var sendAt string
	cmd := &cobra.Command{
		Use: "move ID --send-at TIME", Short: "Reschedule a mailing that has not started",
		Long: `Changes the start time of a mailing, as long as none of its lines has become an email. A time
in the past means now. A mailing that is held or paused stays so, and starts at the new time
at the earliest.`,
		Example: "  gatewayctl mailing move 01a1fe26-7c3d-7e4f-8a5b-6c7d8e9f0a1b --send-at 2026-03-02T10:00:00-03:00",
		Args:    command.ExactArgs("ID"), ValidArgsFunction: completeMailings(c),
		RunE: tenant.Run(c, func(ctx context.Context, api *client.Client, args []string) (output.Result, error) {
			id, err := parseMailing(args[0])
			if err != nil {
				return nil, err
			}
			v := controlledMailing{done: "rescheduled", mailingView: mailingView{now: time.Now()}}
			err = api.Patch(ctx, mailingPath+"/"+id.String(), map[string]string{"sendAt": sendAt}, &v.mailingView)
			return v, err
		}),
	}
	cmd.Flags().StringVar(&sendAt, "send-at", "", "the earliest start `TIME`, as in 2026-03-01T09:00:00-03:00")
	return command.RequireFlags(cmd, "send-at")
}

// controlledMailing is a mailing after an action.
type controlledMailing struct {
	mailingView
	done string
}

func (v controlledMailing) WriteText(w io.Writer) {
	fmt.Fprintf(w, "Mailing %s was %s and is %s now.\n", v.ID, v.done, v.Status)
	fmt.Fprintf(w, "%s of %s emails are finished, %s are queued.\n", output.Thousands(v.ended()), output.Thousands(v.Accepted), output.Thousands(v.Queued))
	if v.StartsAt != nil && v.StartsAt.After(v.now) {
		fmt.Fprintf(w, "It starts %s.\n", output.RelativeTime(*v.StartsAt, v.now))
	}
	if next := v.next(); next != "" {
		fmt.Fprintln(w, next)
	}
}
