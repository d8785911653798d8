// Package suppression implements gatewayctl suppression: operators and tenants manage the
// addresses that a company must not email, and tenants import lists of them.
package suppression

import (
	"context"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"email-gateway/api/internal/client"
	"email-gateway/api/internal/ctl/command"
	"email-gateway/api/internal/ctl/output"
	"email-gateway/api/internal/ctl/role"
	"email-gateway/shared/store"
	suppressionstore "email-gateway/shared/store/suppression"
)

// suppressionPath is the api's route of suppressions.
const suppressionPath = "/v1/suppressions"

// Command returns the command `gatewayctl suppression` with its subcommands.
func Command(c *command.Invocation) *cobra.Command {
	cmd := command.Group("suppression", "Manage the addresses that a company must not email",
		`A suppressed address gets no further email of the company: waiting emails become SUPPRESSED.
The reason UNSUBSCRIBE applies to mailings only. Bounces, complaints and unsubscribe links add
suppressions automatically. A tenant's key needs the scope suppressions:write; import is for
tenants only.`,
		`  gatewayctl suppression add maria@cliente.example --note 'requested by phone'
  gatewayctl suppression import unsubscribed.csv --reason UNSUBSCRIBE`)
	cmd.AddCommand(listCommand(c), addCommand(c), removeCommand(c), importCommand(c))
	return cmd
}

// suppressionView is a suppressed address. Its JSON names are those of the HTTP API.
type suppressionView struct {
	Address   string     `json:"address"`
	Reason    string     `json:"reason"`
	MailingID *uuid.UUID `json:"mailingId,omitempty"`
	Note      string     `json:"note,omitempty"`
	CreatedAt time.Time  `json:"createdAt"`
}

func reasons() []string {
	var names []string
	for _, r := range suppressionstore.Reasons() {
		names = append(names, string(r))
	}
	return names
}

// suppressionReasonFlag adds the flag --reason, which selects a suppression's reason.
func suppressionReasonFlag(cmd *cobra.Command, reason *string, usual, what string) *cobra.Command {
	cmd.Flags().StringVar(reason, "reason", usual, "`REASON`, "+what+": "+strings.Join(reasons(), ", "))
	command.CompleteFlag(cmd, "reason", reasons())
	return cmd
}

func checkReason(reason *string) error {
	if *reason = strings.ToUpper(*reason); *reason != "" && !slices.Contains(reasons(), *reason) {
		return command.Usagef("--reason %q must be one of %s", *reason, strings.Join(reasons(), ", "))
	}
	return nil
}

// suppressRequest is the request body of the api.
type suppressRequest struct {
	Address string `json:"address"`
	Reason  string `json:"reason,omitempty"`
	Note    string `json:"note,omitempty"`
}

type suppressed struct {
	suppressionView
	company string // set for operators; "" = the tenant's own company
}

func addCommand(c *command.Invocation) *cobra.Command {
	var o suppressionChoice
	cmd := &cobra.Command{
		Use: "add ADDRESS", Short: "Suppress an address",
		Long: `Suppresses an address: it gets no further email of the company. Suppressing it again only
changes the note. An operator names the company; the note is also recorded in the audit log.
` + role.Help,
		Example: "  gatewayctl suppression add maria@cliente.example --note 'requested by phone'",
		Args:    command.ExactArgs("ADDRESS"),
	}
	cmd.Flags().StringVar(&o.note, "note", "", "a note, a `TEXT` of at most 200 characters")
	companyFlag(c, cmd, &o.company)
	suppressionReasonFlag(cmd, &o.reason, string(suppressionstore.Manual), "the reason")
	return role.Command(c, cmd, role.Actions{
		Operator: func(ctx context.Context, s *store.Store, args []string) (output.Result, error) {
			return suppressFor(ctx, c, s, &o, args[0])
		},
		Tenant: func(ctx context.Context, api *client.Client, args []string) (output.Result, error) {
			if err := o.ofTenant(); err != nil {
				return nil, err
			}
			var v suppressed
			err := api.PostAgain(ctx, suppressionPath, suppressRequest{Address: args[0], Reason: o.reason, Note: o.note}, &v.suppressionView)
			return v, err
		},
	})
}

func (v suppressed) WriteText(w io.Writer) {
	fmt.Fprintf(w, "%s gets no %s: suppressed (%s) since %s.\n", output.Printable(v.Address), blocked(v.Reason), v.Reason, output.Timestamp(v.CreatedAt))
	back := "gatewayctl suppression remove " + output.ShellWord(v.Address) + " --reason " + v.Reason
	if v.company != "" {
		back += " --company " + output.ShellWord(v.company) + " --note …"
	}
	fmt.Fprintf(w, "To undo: %s\n", back)
}

// blocked returns what a suppression with the reason blocks.
func blocked(reason string) string {
	if reason == string(suppressionstore.Unsubscribed) {
		return "mailings"
	}
	return "emails"
}

// unsuppressed is a removed suppression.
type unsuppressed struct {
	Address string `json:"address"`
	Reason  string `json:"reason,omitempty"` // empty: all reasons
}

func removeCommand(c *command.Invocation) *cobra.Command {
	var o suppressionChoice
	cmd := &cobra.Command{
		Use: "remove ADDRESS", Short: "Remove a suppression",
		Long: `Removes the suppressions of an address, or only the one with the given reason. Do not email
again an address that complained or does not exist: SES counts both against the sender. An
operator names the company and gives the reason with --note.

If SES reports OnAccountSuppressionList for later emails, the address is also on the suppression
list of the SES account: an operator removes it there with
'aws sesv2 delete-suppressed-destination --email-address ADDRESS', or turns that list off.
` + role.Help,
		Example: `  gatewayctl suppression remove maria@cliente.example --reason UNSUBSCRIBE
  gatewayctl suppression remove maria@cliente.example --company Acme --note 'mailbox works again'`,
		Args: command.ExactArgs("ADDRESS"),
	}
	cmd.Flags().StringVar(&o.note, "note", "", "operators only: a `TEXT` for the audit log")
	companyFlag(c, cmd, &o.company)
	suppressionReasonFlag(cmd, &o.reason, "", "only this reason")
	return role.Command(c, cmd, role.Actions{
		Operator: func(ctx context.Context, s *store.Store, args []string) (output.Result, error) {
			return unsuppressFor(ctx, c, s, &o, args[0])
		},
		Tenant: func(ctx context.Context, api *client.Client, args []string) (output.Result, error) {
			if err := o.ofTenant(); err != nil {
				return nil, err
			}
			query := url.Values{"address": {args[0]}}
			if o.reason != "" {
				query.Set("reason", o.reason)
			}
			return unsuppressed{args[0], o.reason}, api.Delete(ctx, suppressionPath, query)
		},
	})
}

func (v unsuppressed) WriteText(w io.Writer) {
	if v.Reason == "" {
		fmt.Fprintf(w, "%s is no longer suppressed.\n", output.Printable(v.Address))
		return
	}
	fmt.Fprintf(w, "%s is no longer suppressed for %s.\n", output.Printable(v.Address), v.Reason)
}
