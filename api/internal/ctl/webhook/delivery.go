package webhook

import (
	"context"
	"fmt"
	"io"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"email-gateway/api/internal/client"
	"email-gateway/api/internal/ctl/command"
	"email-gateway/api/internal/ctl/output"
	"email-gateway/api/internal/ctl/tenant"
)

// webhookDeliveryView is a failed delivery or a test. Its JSON names are those of the HTTP API.
type webhookDeliveryView struct {
	ID            uuid.UUID  `json:"id"`
	EventID       string     `json:"eventId"`
	Type          string     `json:"type"`
	OutboxID      *uuid.UUID `json:"outboxId,omitempty"`
	Status        string     `json:"status"`
	Attempts      int        `json:"attempts"`
	NextAttemptAt *time.Time `json:"nextAttemptAt,omitempty"`
	LastAttemptAt *time.Time `json:"lastAttemptAt,omitempty"`
	LastStatus    *int       `json:"lastStatus,omitempty"`
	LastError     string     `json:"lastError,omitempty"`
	LastTookMS    *int       `json:"lastDurationMs,omitempty"`
	CreatedAt     time.Time  `json:"createdAt"`
}

func (v webhookDeliveryView) WriteText(w io.Writer) {
	webhookDeliveries{Deliveries: []webhookDeliveryView{v}}.WriteText(w)
}

type webhookDeliveries struct {
	Deliveries []webhookDeliveryView `json:"deliveries"`
	More       bool                  `json:"more"`
}

func (v webhookDeliveries) WriteText(w io.Writer) {
	if len(v.Deliveries) == 0 {
		fmt.Fprintln(w, "No failed deliveries and no tests found.")
		return
	}
	rows := [][]string{{"ID", "TYPE", "STATUS", "ATTEMPTS", "NEXT", "LAST ERROR"}}
	for _, d := range v.Deliveries {
		next := "-"
		if d.NextAttemptAt != nil {
			next = output.Timestamp(*d.NextAttemptAt)
		}
		rows = append(rows, []string{d.ID.String(), d.Type, d.Status, strconv.Itoa(d.Attempts), next, d.LastError})
	}
	output.Table(w, "", rows)
	output.PrintMore(w, v.More)
}

func deliveriesCommand(c *command.Invocation) *cobra.Command {
	var status string
	var limit int
	cmd := &cobra.Command{
		Use: "deliveries ID", Short: "List failed deliveries and tests of an endpoint, newest first",
		Long:    "Lists deliveries that failed at least once, and tests. Events delivered at the first attempt are not listed.",
		Example: "  gatewayctl webhook deliveries 01a1fe26-7c3d-7e4f-8a5b-6c7d8e9f0a1b --status FAILED",
		Args:    command.ExactArgs("ID"),
	}
	cmd.Flags().StringVar(&status, "status", "", "only deliveries in this `STATUS`: RETRYING, WAITING, DELIVERED or FAILED")
	command.LimitFlag(cmd, &limit)
	cmd.RunE = tenant.Run(c, func(ctx context.Context, api *client.Client, args []string) (output.Result, error) {
		if err := command.CheckLimit(limit); err != nil {
			return nil, err
		}
		query := url.Values{}
		if status != "" {
			query.Set("status", strings.ToUpper(status))
		}
		found, more, err := tenant.Pages[webhookDeliveryView](ctx, api, webhookPath+"/"+url.PathEscape(args[0])+"/deliveries", "deliveries", query, limit)
		return webhookDeliveries{found, more}, err
	})
	return cmd
}

func testCommand(c *command.Invocation) *cobra.Command {
	cmd := &cobra.Command{
		Use: "test ID", Short: "Send a test event to an endpoint",
		Long:    "Sends an event of the type webhook.test once, within seconds. gatewayctl webhook deliveries shows\nthe result.",
		Example: "  gatewayctl webhook test 01a1fe26-7c3d-7e4f-8a5b-6c7d8e9f0a1b",
		Args:    command.ExactArgs("ID"),
	}
	cmd.RunE = tenant.Run(c, func(ctx context.Context, api *client.Client, args []string) (output.Result, error) {
		var v webhookDeliveryView
		err := api.Post(ctx, webhookPath+"/"+url.PathEscape(args[0])+"/test", nil, &v, "")
		return v, err
	})
	return cmd
}

func retryCommand(c *command.Invocation) *cobra.Command {
	cmd := &cobra.Command{
		Use: "retry ID DELIVERY", Short: "Deliver one event again",
		Long:    "Delivers an event again at once, with the same webhook-id.",
		Example: "  gatewayctl webhook retry 01a1fe26-7c3d-7e4f-8a5b-6c7d8e9f0a1b 01a1fe27-0c3d-7e4f-8a5b-6c7d8e9f0a1b",
		Args:    command.ExactArgs("ID", "DELIVERY"),
	}
	cmd.RunE = tenant.Run(c, func(ctx context.Context, api *client.Client, args []string) (output.Result, error) {
		var v webhookDeliveryView
		err := api.PostAgain(ctx, webhookPath+"/"+url.PathEscape(args[0])+"/deliveries/"+url.PathEscape(args[1])+"/retry", nil, &v)
		return v, err
	})
	return cmd
}

type webhookReplayView struct {
	ReplayID   uuid.UUID  `json:"replayId"`
	Status     string     `json:"status"`
	Failed     bool       `json:"failed"`
	Since      *time.Time `json:"since,omitempty"`
	Until      *time.Time `json:"until,omitempty"`
	Done       int        `json:"done"`
	CreatedAt  time.Time  `json:"createdAt"`
	FinishedAt *time.Time `json:"finishedAt,omitempty"`
}

func (v webhookReplayView) WriteText(w io.Writer) {
	fmt.Fprintf(w, "Replay %s: %s, %s so far.\n", v.ReplayID, v.Status, output.Plural(v.Done, "event", "events"))
}

func replayCommand(c *command.Invocation) *cobra.Command {
	var o struct {
		Failed bool   `json:"failed,omitempty"`
		Since  string `json:"since,omitempty"`
		Until  string `json:"until,omitempty"`
	}
	cmd := &cobra.Command{
		Use: "replay ID", Short: "Deliver all failed events again, or those of a range of time",
		Long:    "Delivers events again, with their webhook-ids: the failed ones, or all of a range of time, also those\nthat were delivered.",
		Example: "  gatewayctl webhook replay 01a1fe26-7c3d-7e4f-8a5b-6c7d8e9f0a1b --failed\n  gatewayctl webhook replay 01a1fe26-7c3d-7e4f-8a5b-6c7d8e9f0a1b --since 2026-03-01T08:00:00Z",
		Args:    command.ExactArgs("ID"),
	}
	cmd.Flags().BoolVar(&o.Failed, "failed", false, "the failed deliveries")
	cmd.Flags().StringVar(&o.Since, "since", "", "events from this `TIME` on (RFC 3339)")
	cmd.Flags().StringVar(&o.Until, "until", "", "events before this `TIME`; default: now")
	cmd.RunE = tenant.Run(c, func(ctx context.Context, api *client.Client, args []string) (output.Result, error) {
		var v webhookReplayView
		err := api.Post(ctx, webhookPath+"/"+url.PathEscape(args[0])+"/replays", o, &v, "")
		return v, err
	})
	return cmd
}
