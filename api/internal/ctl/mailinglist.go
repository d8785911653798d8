package ctl

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"email-gateway/api/internal/client"
)

// most is how many things one list shows at most, and perPage what the api gives at a time.
const most, perPage = 10_000, 100

// page is a page of one of the api's lists, whose rows stand under a name of their own.
type page[T any] struct {
	Rows []T
	Next string
}

// pages reads page after page of a list until there are limit rows or no more. more says
// that there may be.
func pages[T any](ctx context.Context, api *client.Client, path, field string, query url.Values, limit int) (rows []T, more bool, err error) {
	rows = []T{}
	for {
		query.Set("limit", strconv.Itoa(min(limit-len(rows), perPage)))
		var fields map[string]json.RawMessage
		if err := api.Get(ctx, path, query, &fields); err != nil {
			return nil, false, err
		}
		var p page[T]
		if err := json.Unmarshal(fields[field], &p.Rows); err != nil {
			return nil, false, fmt.Errorf("read %s: %w", field, err)
		}
		if text, ok := fields["nextCursor"]; ok {
			if err := json.Unmarshal(text, &p.Next); err != nil {
				return nil, false, fmt.Errorf("read nextCursor: %w", err)
			}
		}
		rows = append(rows, p.Rows...)
		if p.Next == "" || len(rows) >= limit {
			return rows, p.Next != "", nil
		}
		query.Set("cursor", p.Next)
	}
}

// limited gives a list the flag that bounds it.
func limited(cmd *cobra.Command, limit *int) *cobra.Command {
	cmd.Flags().IntVar(limit, "limit", 50, "at most `N` of them")
	return cmd
}

func checkLimit(limit int) error {
	if limit < 1 || limit > most {
		return usagef("--limit must be 1 to %d", most)
	}
	return nil
}

type mailingList struct {
	Mailings []mailingView `json:"mailings"`
	More     bool          `json:"more"`
}

func (c *control) mailingList() *cobra.Command {
	var limit int
	cmd := &cobra.Command{
		Use: "list", Short: "List mailings, newest first",
		Example: "  gatewayctl mailing list\n  gatewayctl mailing list --limit 500 --json",
		Args:    needs(),
		RunE: c.call(func(ctx context.Context, api *client.Client, _ []string) (answer, error) {
			if err := checkLimit(limit); err != nil {
				return nil, err
			}
			found, more, err := pages[mailingView](ctx, api, mailingPath, "mailings", url.Values{}, limit)
			return mailingList{found, more}, err
		}),
	}
	return limited(cmd, &limit)
}

func (v mailingList) text(w io.Writer) {
	if len(v.Mailings) == 0 {
		fmt.Fprintln(w, "There is no mailing yet: `gatewayctl mailing create --help` tells how to make one.")
		return
	}
	rows := [][]string{{"ID", "UPLOADED", "FILE", "STATUS", "ENDED", "SENT", "FAILED"}}
	for _, m := range v.Mailings {
		rows = append(rows, []string{
			m.ID.String(), stamp(m.CreatedAt), m.Filename, m.state(), thousands(m.ended()) + " of " + thousands(m.Accepted),
			thousands(m.Sent), thousands(m.Failed),
		})
	}
	table(w, "", rows)
	tellMore(w, v.More)
}

func tellMore(w io.Writer, more bool) {
	if more {
		fmt.Fprintln(w, "\nThere may be more: --limit shows them.")
	}
}

// entryView is an address of a mailing. The names are those of the HTTP API.
type entryView struct {
	OutboxID          uuid.UUID  `json:"outboxId"`
	Line              int        `json:"line"`
	Email             string     `json:"email"`
	Status            string     `json:"status"`
	InvalidReason     string     `json:"invalidReason,omitempty"`
	ValidationDetails string     `json:"validationDetails,omitempty"`
	OutcomeUnknown    bool       `json:"outcomeUnknown"`
	Attempts          int        `json:"attempts"`
	LastAttemptAt     *time.Time `json:"lastAttemptAt,omitempty"`
	SESMessageID      string     `json:"sesMessageId,omitempty"`
	Nome              string     `json:"nome,omitempty"`
	RazaoSocial       string     `json:"razaoSocial,omitempty"`
	ExternalID        string     `json:"externalId,omitempty"`
	RecipientID       *uuid.UUID `json:"recipientId,omitempty"`
	UpdatedAt         time.Time  `json:"updatedAt"`
}

type entryList struct {
	Entries []entryView `json:"entries"`
	More    bool        `json:"more"`
}

func (c *control) mailingEntries() *cobra.Command {
	var status string
	var limit int
	cmd := &cobra.Command{
		Use: "entries ID", Short: "List a mailing's addresses, in the order of the file",
		Long: `Lists the addresses of a mailing and what became of each. An address's id is that of the
email made from it: gatewayctl email show tells its story.`,
		Example: "  gatewayctl mailing entries 01a1fe26-7c3d-7e4f-8a5b-6c7d8e9f0a1b --status FAILED --limit 500",
		Args:    needs("ID"), ValidArgsFunction: c.completeMailings,
		RunE: c.call(func(ctx context.Context, api *client.Client, args []string) (answer, error) {
			id, err := parseMailing(args[0])
			if err != nil {
				return nil, err
			}
			if err := checkLimit(limit); err != nil {
				return nil, err
			}
			query := url.Values{}
			if status != "" {
				query.Set("status", strings.ToUpper(status))
			}
			found, more, err := pages[entryView](ctx, api, mailingPath+"/"+id.String()+"/entries", "entries", query, limit)
			return entryList{found, more}, err
		}),
	}
	cmd.Flags().StringVar(&status, "status", "", "only those of a `STATUS`, such as FAILED")
	complete(cmd, "status", []string{"PENDING", "INVALID", "QUEUED", "SENT", "FAILED", "EXPIRED", "CANCELLED", "SUPPRESSED"})
	return limited(cmd, &limit)
}

func (v entryList) text(w io.Writer) {
	if len(v.Entries) == 0 {
		fmt.Fprintln(w, "There are none.")
		return
	}
	rows := [][]string{{"LINE", "ADDRESS", "STATUS", "TRIES", "EMAIL"}}
	for _, e := range v.Entries {
		status := e.Status
		if e.InvalidReason != "" {
			status += " (" + failure(e.InvalidReason, e.ValidationDetails) + ")"
		}
		if e.OutcomeUnknown {
			status += " (outcome unknown)"
		}
		rows = append(rows, []string{strconv.Itoa(e.Line), e.Email, status, strconv.Itoa(e.Attempts), e.OutboxID.String()})
	}
	table(w, "", rows)
	tellMore(w, v.More)
}
