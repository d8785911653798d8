package ctl

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
	"email-gateway/shared/store"
)

// suppressionPath is the api's route of suppressions.
const suppressionPath = "/v1/suppressions"

func (c *control) suppression() *cobra.Command {
	cmd := group("suppression", "Manage the addresses that a company must not email",
		`A suppressed address gets no further email of the company: waiting emails become SUPPRESSED.
The reason UNSUBSCRIBE applies to mailings only. Bounces, complaints and unsubscribe links add
suppressions automatically. A tenant's key needs the scope suppressions:write; import is for
tenants only.`,
		`  gatewayctl suppression add maria@cliente.example --note 'requested by phone'
  gatewayctl suppression import unsubscribed.csv --reason UNSUBSCRIBE`)
	cmd.AddCommand(c.suppressionList(), c.suppressionAdd(), c.suppressionRemove(), c.suppressionImport())
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
	for _, r := range store.SuppressionReasons() {
		names = append(names, string(r))
	}
	return names
}

// suppressionReasonFlag adds the flag --reason, which selects a suppression's reason.
func suppressionReasonFlag(cmd *cobra.Command, reason *string, usual, what string) *cobra.Command {
	cmd.Flags().StringVar(reason, "reason", usual, "`REASON`, "+what+": "+strings.Join(reasons(), ", "))
	complete(cmd, "reason", reasons())
	return cmd
}

func checkReason(reason *string) error {
	if *reason = strings.ToUpper(*reason); *reason != "" && !slices.Contains(reasons(), *reason) {
		return usagef("--reason %q must be one of %s", *reason, strings.Join(reasons(), ", "))
	}
	return nil
}

type suppressionList struct {
	Suppressions []suppressionView `json:"suppressions"`
	More         bool              `json:"more"`
}

func (c *control) suppressionList() *cobra.Command {
	var o suppressionChoice
	cmd := &cobra.Command{
		Use: "list", Short: "List suppressed addresses in alphabetical order",
		Long: `Lists suppressed addresses. An operator names the company and sees addresses masked unless
--address or --reveal is given; a tenant sees its own.
` + accessHelp,
		Example: "  gatewayctl suppression list --reason COMPLAINT\n  gatewayctl suppression list --company Acme --address maria@cliente.example",
		Args:    exactArgs(),
	}
	cmd.Flags().StringVar(&o.address, "address", "", "only suppressions of this `ADDRESS`")
	cmd.Flags().BoolVar(&o.reveal, "reveal", false, "operators only: show addresses in full; writes an audit entry")
	c.companyFlag(cmd, &o.company)
	limitFlag(suppressionReasonFlag(cmd, &o.reason, "", "only suppressions with this reason"), &o.limit)
	return c.operatorOrTenant(cmd, operatorOrTenant{
		operator: func(ctx context.Context, s *store.Store, _ []string) (answer, error) {
			return c.listSuppressionsOf(ctx, s, &o)
		},
		tenant: func(ctx context.Context, api *client.Client, _ []string) (answer, error) {
			if err := o.ofTenant(); err != nil {
				return nil, err
			}
			if err := checkLimit(o.limit); err != nil {
				return nil, err
			}
			query := url.Values{}
			if o.address != "" {
				query.Set("address", o.address)
			}
			if o.reason != "" {
				query.Set("reason", o.reason)
			}
			found, more, err := pages[suppressionView](ctx, api, suppressionPath, "suppressions", query, o.limit)
			return suppressionList{found, more}, err
		},
	})
}

func (v suppressionList) text(w io.Writer) {
	if len(v.Suppressions) == 0 {
		fmt.Fprintln(w, "No suppressions found.")
		return
	}
	rows := [][]string{{"ADDRESS", "REASON", "SINCE", "MAILING", "NOTE"}}
	for _, s := range v.Suppressions {
		mailing := "-"
		if s.MailingID != nil {
			mailing = s.MailingID.String()
		}
		rows = append(rows, []string{s.Address, s.Reason, stamp(s.CreatedAt), mailing, s.Note})
	}
	table(w, "", rows)
	printMore(w, v.More)
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

func (c *control) suppressionAdd() *cobra.Command {
	var o suppressionChoice
	cmd := &cobra.Command{
		Use: "add ADDRESS", Short: "Suppress an address",
		Long: `Suppresses an address: it gets no further email of the company. Suppressing it again only
changes the note. An operator names the company; the note is also recorded in the audit log.
` + accessHelp,
		Example: "  gatewayctl suppression add maria@cliente.example --note 'requested by phone'",
		Args:    exactArgs("ADDRESS"),
	}
	cmd.Flags().StringVar(&o.note, "note", "", "a note, a `TEXT` of at most 200 characters")
	c.companyFlag(cmd, &o.company)
	suppressionReasonFlag(cmd, &o.reason, string(store.Manual), "the reason")
	return c.operatorOrTenant(cmd, operatorOrTenant{
		operator: func(ctx context.Context, s *store.Store, args []string) (answer, error) {
			return c.suppressFor(ctx, s, &o, args[0])
		},
		tenant: func(ctx context.Context, api *client.Client, args []string) (answer, error) {
			if err := o.ofTenant(); err != nil {
				return nil, err
			}
			var v suppressed
			err := api.PostAgain(ctx, suppressionPath, suppressRequest{Address: args[0], Reason: o.reason, Note: o.note}, &v.suppressionView)
			return v, err
		},
	})
}

func (v suppressed) text(w io.Writer) {
	fmt.Fprintf(w, "%s gets no %s: suppressed (%s) since %s.\n", printable(v.Address), blocked(v.Reason), v.Reason, stamp(v.CreatedAt))
	back := "gatewayctl suppression remove " + shellWord(v.Address) + " --reason " + v.Reason
	if v.company != "" {
		back += " --company " + shellWord(v.company) + " --note …"
	}
	fmt.Fprintf(w, "To undo: %s\n", back)
}

// blocked returns what a suppression with the reason blocks.
func blocked(reason string) string {
	if reason == string(store.Unsubscribed) {
		return "mailings"
	}
	return "emails"
}

// unsuppressed is a removed suppression.
type unsuppressed struct {
	Address string `json:"address"`
	Reason  string `json:"reason,omitempty"` // empty: all reasons
}

func (c *control) suppressionRemove() *cobra.Command {
	var o suppressionChoice
	cmd := &cobra.Command{
		Use: "remove ADDRESS", Short: "Remove a suppression",
		Long: `Removes the suppressions of an address, or only the one with the given reason. Do not email
again an address that complained or does not exist: SES counts both against the sender. An
operator names the company and gives the reason with --note.
` + accessHelp,
		Example: `  gatewayctl suppression remove maria@cliente.example --reason UNSUBSCRIBE
  gatewayctl suppression remove maria@cliente.example --company Acme --note 'mailbox works again'`,
		Args: exactArgs("ADDRESS"),
	}
	cmd.Flags().StringVar(&o.note, "note", "", "operators only: a `TEXT` for the audit log")
	c.companyFlag(cmd, &o.company)
	suppressionReasonFlag(cmd, &o.reason, "", "only this reason")
	return c.operatorOrTenant(cmd, operatorOrTenant{
		operator: func(ctx context.Context, s *store.Store, args []string) (answer, error) {
			return c.unsuppressFor(ctx, s, &o, args[0])
		},
		tenant: func(ctx context.Context, api *client.Client, args []string) (answer, error) {
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

func (v unsuppressed) text(w io.Writer) {
	if v.Reason == "" {
		fmt.Fprintf(w, "%s is no longer suppressed.\n", printable(v.Address))
		return
	}
	fmt.Fprintf(w, "%s is no longer suppressed for %s.\n", printable(v.Address), v.Reason)
}
