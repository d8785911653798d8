// Package events implements gatewayctl events, which prints the event feed of a tenant.
package events

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"email-gateway/api/internal/client"
	"email-gateway/api/internal/ctl/command"
	"email-gateway/api/internal/ctl/output"
	"email-gateway/api/internal/ctl/tenant"
	"email-gateway/shared/service"
)

const (
	// eventPath is the api's route of the feed.
	eventPath = "/v1/events"
	// eventWait is how long one request of --follow waits for the next event (seconds): the api's maximum.
	eventWait = 30
	// eventPause is how long --follow pauses after a request that failed temporarily, or that returned an empty page in
	// less than this time: the api limits concurrent long polls.
	eventPause = time.Second
)

// feedEventView is an event of the feed. Its JSON names are those of the HTTP API.
type feedEventView struct {
	ID         string          `json:"id"`
	Type       string          `json:"type"`
	CreatedAt  time.Time       `json:"createdAt"`
	OutboxID   string          `json:"outboxId,omitempty"`
	Seq        int             `json:"seq,omitempty"`
	RequestID  string          `json:"requestId,omitempty"`
	To         string          `json:"to,omitempty"`
	ExternalID string          `json:"externalId,omitempty"`
	Tags       []string        `json:"tags,omitempty"`
	Aggregate  json.RawMessage `json:"aggregate,omitempty"`
	MailingID  string          `json:"mailingId,omitempty"`
	Metadata   json.RawMessage `json:"metadata"`
}

// line is the event on one line.
func (v feedEventView) line() string {
	about := v.To
	if v.OutboxID != "" {
		about += " " + v.OutboxID
	}
	if text := string(v.Metadata); text != "" && text != "{}" {
		about += " " + text
	}
	return strings.TrimSpace(output.Printable(fmt.Sprintf("%s  %-20s %s", output.TimestampMS(v.CreatedAt), v.Type, strings.TrimSpace(about))))
}

type feedEventPage struct {
	Events     []feedEventView `json:"events"`
	NextCursor string          `json:"nextCursor"`
	HasMore    bool            `json:"hasMore"`
}

func (v feedEventPage) WriteText(w io.Writer) {
	for _, e := range v.Events {
		fmt.Fprintln(w, e.line())
	}
	if len(v.Events) == 0 {
		fmt.Fprintln(w, "No events found.")
	}
	if v.HasMore {
		fmt.Fprintf(w, "There are more: gatewayctl events --after %s\n", v.NextCursor)
	}
}

// eventQuery has the flags of the command.
type eventQuery struct {
	after, types string
	limit        int
	follow       bool
}

// Command returns the command `gatewayctl events`.
func Command(c *command.Invocation) *cobra.Command {
	var q eventQuery
	cmd := &cobra.Command{
		Use: "events", Short: "Show the feed of a company's events, or follow it",
		Long: `Shows the events of the company's emails from the last 30 days, the oldest first, as GET /v1/events
returns them. For tenants: it needs API_KEY with the scope emails:read.

--follow waits for further events until it is interrupted, and then prints the command that continues
there. It starts with the next event unless --after is given, and continues when the api was unreachable.
With --json it prints one event per line.`,
		Example: `  gatewayctl events --types BOUNCED,COMPLAINED
  gatewayctl events --follow
  gatewayctl events --follow --json | jq -r 'select(.type == "BOUNCED") | .to'`,
		Args: command.ExactArgs(),
	}
	cmd.Flags().StringVar(&q.after, "after", "", "only events after this `CURSOR`; latest: only new events")
	cmd.Flags().StringVar(&q.types, "types", "", "only events of these `TYPES`, such as BOUNCED,COMPLAINED")
	cmd.Flags().BoolVar(&q.follow, "follow", false, "wait for further events")
	command.LimitFlag(cmd, &q.limit)
	cmd.RunE = tenant.Run(c, func(ctx context.Context, api *client.Client, _ []string) (output.Result, error) {
		if err := command.CheckLimit(q.limit); err != nil {
			return nil, err
		}
		if q.follow {
			return nil, followEvents(ctx, c, api, q)
		}
		return q.read(ctx, api)
	})
	return cmd
}

// query returns the query of one request.
func (q eventQuery) query(limit int) url.Values {
	values := url.Values{"limit": {strconv.Itoa(limit)}}
	if q.after != "" {
		values.Set("after", q.after)
	}
	if q.types != "" {
		values.Set("types", strings.ToUpper(q.types))
	}
	return values
}

// mostPerPage is the api's limit of a page.
const mostPerPage = 100

// read reads at most limit events.
func (q eventQuery) read(ctx context.Context, api *client.Client) (feedEventPage, error) {
	all := feedEventPage{Events: []feedEventView{}}
	for {
		var page feedEventPage
		if err := api.Get(ctx, eventPath, q.query(min(mostPerPage, q.limit-len(all.Events))), &page); err != nil {
			return all, err
		}
		all.Events = append(all.Events, page.Events...)
		all.NextCursor, all.HasMore, q.after = page.NextCursor, page.HasMore, page.NextCursor
		if !page.HasMore || len(all.Events) >= q.limit {
			return all, nil
		}
	}
}

// followEvents prints events as they come, until ctx ends.
func followEvents(ctx context.Context, c *command.Invocation, api *client.Client, q eventQuery) error {
	if q.after == "" {
		q.after = "latest"
	}
	for lastAnswer := time.Now(); ; {
		values := q.query(mostPerPage)
		values.Set("wait", strconv.Itoa(eventWait))
		var page feedEventPage
		start := time.Now()
		err := api.Get(ctx, eventPath, values, &page)
		switch {
		case ctx.Err() != nil:
			if q.after != "latest" {
				fmt.Fprintf(c.Stderr, "To continue here: gatewayctl events --follow --after %s\n", q.after)
			}
			return nil
		case err == nil:
			lastAnswer, q.after = time.Now(), page.NextCursor
			if err := printEvents(c, page.Events); err != nil {
				return err
			}
			if len(page.Events) == 0 && !page.HasMore && time.Since(start) < eventPause {
				_ = service.Pause(ctx, eventPause)
			}
		case !tenant.Transient(err) || time.Since(lastAnswer) > tenant.WatchTimeout:
			return err
		default:
			_ = service.Pause(ctx, eventPause)
		}
	}
}

func printEvents(c *command.Invocation, events []feedEventView) error {
	var lines bytes.Buffer
	encoder := json.NewEncoder(&lines)
	encoder.SetEscapeHTML(false)
	for _, e := range events {
		if !c.JSON {
			fmt.Fprintln(&lines, e.line())
			continue
		}
		if err := encoder.Encode(e); err != nil {
			return fmt.Errorf("encode event: %w", err)
		}
	}
	if _, err := c.Stdout.Write(lines.Bytes()); err != nil {
		return fmt.Errorf("write events: %w", err)
	}
	return nil
}
