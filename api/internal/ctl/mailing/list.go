package mailing

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

type mailingList struct {
	Mailings []mailingView `json:"mailings"`
	More     bool          `json:"more"`
}

func listCommand(c *command.Invocation) *cobra.Command {
	var limit int
	cmd := &cobra.Command{
		Use: "list", Short: "List mailings, newest first",
		Example: "  gatewayctl mailing list\n  gatewayctl mailing list --limit 500 --json",
		Args:    command.ExactArgs(),
		RunE: tenant.Run(c, func(ctx context.Context, api *client.Client, _ []string) (output.Result, error) {
			if err := command.CheckLimit(limit); err != nil {
				return nil, err
			}
			found, more, err := tenant.Pages[mailingView](ctx, api, mailingPath, "mailings", url.Values{}, limit)
			return mailingList{found, more}, err
		}),
	}
	return command.LimitFlag(cmd, &limit)
}

func (v mailingList) WriteText(w io.Writer) {
	if len(v.Mailings) == 0 {
		fmt.Fprintln(w, "No mailings yet: see `gatewayctl mailing create --help`.")
		return
	}
	rows := [][]string{{"ID", "UPLOADED", "FILE", "STATUS", "FINISHED", "SENT", "FAILED"}}
	for _, m := range v.Mailings {
		rows = append(rows, []string{
			m.ID.String(), output.Timestamp(m.CreatedAt), m.Filename, m.state(), output.Thousands(m.ended()) + " of " + output.Thousands(m.Accepted),
			output.Thousands(m.Sent), output.Thousands(m.Failed),
		})
	}
	output.Table(w, "", rows)
	output.PrintMore(w, v.More)
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

func entriesCommand(c *command.Invocation) *cobra.Command {
	var status string
	var limit int
	cmd := &cobra.Command{
		Use: "entries ID", Short: "List a mailing's addresses, in the order of the file",
		Long: `Lists the addresses of a mailing with their status. The id of an entry is that of its email:
pass it to gatewayctl email show.`,
		Example: "  gatewayctl mailing entries 01a1fe26-7c3d-7e4f-8a5b-6c7d8e9f0a1b --status FAILED --limit 500",
		Args:    command.ExactArgs("ID"), ValidArgsFunction: completeMailings(c),
		RunE: tenant.Run(c, func(ctx context.Context, api *client.Client, args []string) (output.Result, error) {
			id, err := parseMailing(args[0])
			if err != nil {
				return nil, err
			}
			if err := command.CheckLimit(limit); err != nil {
				return nil, err
			}
			query := url.Values{}
			if status != "" {
				query.Set("status", strings.ToUpper(status))
			}
			found, more, err := tenant.Pages[entryView](ctx, api, mailingPath+"/"+id.String()+"/entries", "entries", query, limit)
			return entryList{found, more}, err
		}),
	}
	cmd.Flags().StringVar(&status, "status", "", "only addresses with this `STATUS`, such as FAILED")
	command.CompleteFlag(cmd, "status", []string{"PENDING", "INVALID", "QUEUED", "SENT", "FAILED", "EXPIRED", "CANCELLED", "SUPPRESSED"})
	return command.LimitFlag(cmd, &limit)
}

func (v entryList) WriteText(w io.Writer) {
	if len(v.Entries) == 0 {
		fmt.Fprintln(w, "No addresses found.")
		return
	}
	rows := [][]string{{"LINE", "ADDRESS", "STATUS", "TRIES", "EMAIL"}}
	for _, e := range v.Entries {
		status := e.Status
		if e.InvalidReason != "" {
			status += " (" + output.CodeAndReason(e.InvalidReason, e.ValidationDetails) + ")"
		}
		if e.OutcomeUnknown {
			status += " (outcome unknown)"
		}
		rows = append(rows, []string{strconv.Itoa(e.Line), e.Email, status, strconv.Itoa(e.Attempts), e.OutboxID.String()})
	}
	output.Table(w, "", rows)
	output.PrintMore(w, v.More)
}

func completeMailings(c *command.Invocation) command.Completion {
	return tenant.Complete(c, mailingPath, "mailings", func(m mailingView) string {
		return m.ID.String() + "\t" + m.Filename + ", " + string(m.Status)
	})
}
