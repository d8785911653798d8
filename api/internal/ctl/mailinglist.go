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

// maxList limits --limit.
const maxList = 10_000

// perPage is the api's page size.
const perPage = 100

// page is one page of a list of the api.
type page[T any] struct {
	Rows []T
	Next string
}

// pages reads pages until there are limit rows or no more. more reports whether there may
// be further rows.
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

// limitFlag adds the flag --limit to a list command.
func limitFlag(cmd *cobra.Command, limit *int) *cobra.Command {
	cmd.Flags().IntVar(limit, "limit", 50, "show at most `N`")
	return cmd
}

func checkLimit(limit int) error {
	if limit < 1 || limit > maxList {
		return usagef("--limit must be 1 to %d", maxList)
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
		Args:    exactArgs(),
		RunE: c.call(func(ctx context.Context, api *client.Client, _ []string) (answer, error) {
			if err := checkLimit(limit); err != nil {
				return nil, err
			}
			found, more, err := pages[mailingView](ctx, api, mailingPath, "mailings", url.Values{}, limit)
			return mailingList{found, more}, err
		}),
	}
	return limitFlag(cmd, &limit)
}

func (v mailingList) text(w io.Writer) {
	if len(v.Mailings) == 0 {
		fmt.Fprintln(w, "No mailings yet: see `gatewayctl mailing create --help`.")
		return
	}
	rows := [][]string{{"ID", "UPLOADED", "FILE", "STATUS", "FINISHED", "SENT", "FAILED"}}
	for _, m := range v.Mailings {
		rows = append(rows, []string{
			m.ID.String(), stamp(m.CreatedAt), m.Filename, m.state(), thousands(m.ended()) + " of " + thousands(m.Accepted),
			thousands(m.Sent), thousands(m.Failed),
		})
	}
	table(w, "", rows)
	printMore(w, v.More)
}

func printMore(w io.Writer, more bool) {
	if more {
		fmt.Fprintln(w, "\nThere may be more: raise --limit.")
	}
}

// entryView is an address of a mailing. Its JSON names are those of the HTTP API.
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
		Long: `Lists the addresses of a mailing with their status. The id of an entry is that of its email:
pass it to gatewayctl email show.`,
		Example: "  gatewayctl mailing entries 01a1fe26-7c3d-7e4f-8a5b-6c7d8e9f0a1b --status FAILED --limit 500",
		Args:    exactArgs("ID"), ValidArgsFunction: c.completeMailings(),
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
	cmd.Flags().StringVar(&status, "status", "", "only addresses with this `STATUS`, such as FAILED")
	complete(cmd, "status", []string{"PENDING", "INVALID", "QUEUED", "SENT", "FAILED", "EXPIRED", "CANCELLED", "SUPPRESSED"})
	return limitFlag(cmd, &limit)
}

func (v entryList) text(w io.Writer) {
	if len(v.Entries) == 0 {
		fmt.Fprintln(w, "No addresses found.")
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
	printMore(w, v.More)
}
