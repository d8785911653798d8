package ctl

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"email-gateway/api/internal/client"
)

// mailingStep is what a tenant does with a mailing: a word that is the command's name,
// the route's, and begins the sentence that tells of it.
type mailingStep struct {
	name, short, long, done string
}

func (c *control) mailingControls() []*cobra.Command {
	all := []*cobra.Command{c.mailingMove()}
	for _, s := range []mailingStep{
		{
			"start", "Start a mailing that was uploaded to wait", "Starts a mailing that was created with --hold and has never run.",
			"started",
		},
		{
			"pause", "Let no further email of a mailing start", `Holds back within a second whatever SES has not got yet. Nothing is lost: the emails'
deadlines run on, and what is not an email yet has none.`,
			"paused",
		},
		{
			"resume", "Let a paused or failed mailing go on", "Lets a paused mailing go on where it stood, or has the job of a failed one tried again.",
			"resumed",
		},
		{
			"cancel", "End a mailing for good", `Ends a mailing: no further email of it starts, and those that wait become CANCELLED. Emails
that SES has got are not called back. It cannot be undone.`,
			"cancelled",
		},
		{
			"retry-failed", "Send again what failed or expired of a mailing", `Sends again the emails of the mailing that failed or expired, with all their tries. Emails
of which it is not known whether SES took them are left out.`,
			"set going again",
		},
	} {
		all = append(all, c.mailingControl(s))
	}
	return all
}

func (c *control) mailingControl(s mailingStep) *cobra.Command {
	return &cobra.Command{
		Use: s.name + " ID", Short: s.short, Long: s.long,
		Example: "  gatewayctl mailing " + s.name + " 01a1fe26-7c3d-7e4f-8a5b-6c7d8e9f0a1b",
		Args:    needs("ID"), ValidArgsFunction: c.completeMailings,
		RunE: c.call(func(ctx context.Context, api *client.Client, args []string) (answer, error) {
			id, err := parseMailing(args[0])
			if err != nil {
				return nil, err
			}
			v := steered{done: s.done, mailingView: mailingView{now: time.Now()}}
			err = api.Post(ctx, mailingPath+"/"+id.String()+"/"+s.name, nil, &v.mailingView, "")
			return v, err
		}),
	}
}

func (c *control) mailingMove() *cobra.Command {
	var sendAt string
	cmd := &cobra.Command{
		Use: "move ID --send-at TIME", Short: "Move a mailing that has not begun to another time",
		Long: `Has a mailing start at another time, as long as none of its lines has become an email. A time
that has passed is now. A mailing that is held or paused stays so, and starts at the new time
at the earliest.`,
		Example: "  gatewayctl mailing move 01a1fe26-7c3d-7e4f-8a5b-6c7d8e9f0a1b --send-at 2026-03-02T10:00:00-03:00",
		Args:    needs("ID"), ValidArgsFunction: c.completeMailings,
		RunE: c.call(func(ctx context.Context, api *client.Client, args []string) (answer, error) {
			id, err := parseMailing(args[0])
			if err != nil {
				return nil, err
			}
			v := steered{done: "moved", mailingView: mailingView{now: time.Now()}}
			err = api.Patch(ctx, mailingPath+"/"+id.String(), map[string]string{"sendAt": sendAt}, &v.mailingView)
			return v, err
		}),
	}
	cmd.Flags().StringVar(&sendAt, "send-at", "", "not before this `TIME`, as in 2026-03-01T09:00:00-03:00")
	return required(cmd, "send-at")
}

// steered is a mailing after a step.
type steered struct {
	mailingView
	done string
}

func (v steered) text(w io.Writer) {
	fmt.Fprintf(w, "Mailing %s was %s and is %s now.\n", v.ID, v.done, v.Status)
	fmt.Fprintf(w, "%s of %s emails have ended, %s are on their way.\n", thousands(v.ended()), thousands(v.Accepted), thousands(v.Queued))
	if v.StartsAt != nil && v.StartsAt.After(v.now) {
		fmt.Fprintf(w, "It starts %s.\n", moment(*v.StartsAt, v.now))
	}
	if next := v.next(); next != "" {
		fmt.Fprintln(w, next)
	}
}
