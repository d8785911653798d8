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

// suppressionPath is where the api keeps suppressions.
const suppressionPath = "/v1/suppressions"

func (c *control) suppression() *cobra.Command {
	cmd := group("suppression", "Say which addresses a company must not write to",
		`An address that is suppressed gets no email of the company any more: those that wait end
as SUPPRESSED. UNSUBSCRIBE concerns mailings only. Bounces, complaints and unsubscribe links
suppress by themselves. A tenant's key needs the scope suppressions:write; import is a
tenant's alone.`,
		`  gatewayctl suppression add maria@cliente.example --note 'asked on the phone'
  gatewayctl suppression import unsubscribed.csv --reason UNSUBSCRIBE`)
	cmd.AddCommand(c.suppressionList(), c.suppressionAdd(), c.suppressionRemove(), c.suppressionImport())
	return cmd
}

// suppressionView is a suppressed address. The names are those of the HTTP API.
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

// reasonFlag gives a command the flag that says which suppression is meant.
func reasonFlag(cmd *cobra.Command, reason *string, usual, what string) *cobra.Command {
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
		Use: "list", Short: "List suppressed addresses, in their order",
		Long: `Lists suppressed addresses. An operator says of which company, and sees addresses masked
unless he names one or asks to --reveal them; a tenant sees his own.
` + whoLong,
		Example: "  gatewayctl suppression list --reason COMPLAINT\n  gatewayctl suppression list --company Acme --address maria@cliente.example",
		Args:    needs(),
	}
	cmd.Flags().StringVar(&o.address, "address", "", "only those of one `ADDRESS`")
	cmd.Flags().BoolVar(&o.reveal, "reveal", false, "an operator's choice: show addresses in full, which is written down")
	c.companyFlag(cmd, &o.company)
	limited(reasonFlag(cmd, &o.reason, "", "only those for one reason"), &o.limit)
	return c.either(cmd, either{
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
		fmt.Fprintln(w, "There are none.")
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
	tellMore(w, v.More)
}

// suppressRequest is what the api is told.
type suppressRequest struct {
	Address string `json:"address"`
	Reason  string `json:"reason,omitempty"`
	Note    string `json:"note,omitempty"`
}

type suppressed struct {
	suppressionView
	company string // an operator's; "" = the tenant's own
}

func (c *control) suppressionAdd() *cobra.Command {
	var o suppressionChoice
	cmd := &cobra.Command{
		Use: "add ADDRESS", Short: "Keep emails from an address",
		Long: `Keeps the company's emails from an address from now on. Doing it again changes the note
only. An operator says of which company; the note stands in the audit too.
` + whoLong,
		Example: "  gatewayctl suppression add maria@cliente.example --note 'asked on the phone'",
		Args:    needs("ADDRESS"),
	}
	cmd.Flags().StringVar(&o.note, "note", "", "in your own words, a `TEXT` of at most 200 characters")
	c.companyFlag(cmd, &o.company)
	reasonFlag(cmd, &o.reason, string(store.Manual), "why")
	return c.either(cmd, either{
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
	fmt.Fprintf(w, "%s gets no %s any more: %s since %s.\n", printable(v.Address), kept(v.Reason), v.Reason, stamp(v.CreatedAt))
	back := "gatewayctl suppression remove " + shellWord(v.Address) + " --reason " + v.Reason
	if v.company != "" {
		back += " --company " + shellWord(v.company) + " --note …"
	}
	fmt.Fprintf(w, "To take that back: %s\n", back)
}

// kept is what a suppression keeps from an address.
func kept(reason string) string {
	if reason == string(store.Unsubscribed) {
		return "mailings"
	}
	return "emails"
}

// unsuppressed is what was taken back.
type unsuppressed struct {
	Address string `json:"address"`
	Reason  string `json:"reason,omitempty"` // none: every one of the address
}

func (c *control) suppressionRemove() *cobra.Command {
	var o suppressionChoice
	cmd := &cobra.Command{
		Use: "remove ADDRESS", Short: "Let emails through to an address again",
		Long: `Takes back the suppressions of an address, or the one for a reason. Whoever complained or
does not exist should not be written to again: SES counts both against the sender. An
operator says of which company and, with --note, why.
` + whoLong,
		Example: `  gatewayctl suppression remove maria@cliente.example --reason UNSUBSCRIBE
  gatewayctl suppression remove maria@cliente.example --company Acme --note 'mailbox was mended'`,
		Args: needs("ADDRESS"),
	}
	cmd.Flags().StringVar(&o.note, "note", "", "an operator's: in your own words, a `TEXT` for the audit")
	c.companyFlag(cmd, &o.company)
	reasonFlag(cmd, &o.reason, "", "only the one for one reason")
	return c.either(cmd, either{
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
		fmt.Fprintf(w, "%s is suppressed no more.\n", printable(v.Address))
		return
	}
	fmt.Fprintf(w, "%s is suppressed no more for %s.\n", printable(v.Address), v.Reason)
}
