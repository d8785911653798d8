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
suppress by themselves. These commands speak to the HTTP API for the company whose key
API_KEY is; the key needs the scope suppressions:write.`,
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
	var address, reason string
	var limit int
	cmd := &cobra.Command{
		Use: "list", Short: "List suppressed addresses, in their order",
		Example: "  gatewayctl suppression list --reason COMPLAINT\n  gatewayctl suppression list --address maria@cliente.example",
		Args:    needs(),
		RunE: c.call(func(ctx context.Context, api *client.Client, _ []string) (answer, error) {
			if err := checkReason(&reason); err != nil {
				return nil, err
			}
			if err := checkLimit(limit); err != nil {
				return nil, err
			}
			query := url.Values{}
			if address != "" {
				query.Set("address", address)
			}
			if reason != "" {
				query.Set("reason", reason)
			}
			found, more, err := pages[suppressionView](ctx, api, suppressionPath, "suppressions", query, limit)
			return suppressionList{found, more}, err
		}),
	}
	cmd.Flags().StringVar(&address, "address", "", "only those of one `ADDRESS`")
	return limited(reasonFlag(cmd, &reason, "", "only those for one reason"), &limit)
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

type suppressed struct{ suppressionView }

func (c *control) suppressionAdd() *cobra.Command {
	var r suppressRequest
	cmd := &cobra.Command{
		Use: "add ADDRESS", Short: "Keep emails from an address",
		Long:    "Keeps the company's emails from an address from now on. Doing it again changes the note only.",
		Example: "  gatewayctl suppression add maria@cliente.example --note 'asked on the phone'",
		Args:    needs("ADDRESS"),
		RunE: c.call(func(ctx context.Context, api *client.Client, args []string) (answer, error) {
			if err := checkReason(&r.Reason); err != nil {
				return nil, err
			}
			r.Address = args[0]
			var v suppressed
			err := api.PostAgain(ctx, suppressionPath, r, &v.suppressionView)
			return v, err
		}),
	}
	cmd.Flags().StringVar(&r.Note, "note", "", "in your own words, a `TEXT` of at most 200 characters")
	return reasonFlag(cmd, &r.Reason, string(store.Manual), "why")
}

func (v suppressed) text(w io.Writer) {
	fmt.Fprintf(w, "%s gets no %s any more: %s since %s.\n", printable(v.Address), kept(v.Reason), v.Reason, stamp(v.CreatedAt))
	fmt.Fprintf(w, "To take that back: gatewayctl suppression remove %s --reason %s\n", shellWord(v.Address), v.Reason)
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
	var reason string
	cmd := &cobra.Command{
		Use: "remove ADDRESS", Short: "Let emails through to an address again",
		Long: `Takes back the suppressions of an address, or the one for a reason. Whoever complained or
does not exist should not be written to again: SES counts both against the sender.`,
		Example: "  gatewayctl suppression remove maria@cliente.example --reason UNSUBSCRIBE",
		Args:    needs("ADDRESS"),
		RunE: c.call(func(ctx context.Context, api *client.Client, args []string) (answer, error) {
			if err := checkReason(&reason); err != nil {
				return nil, err
			}
			query := url.Values{"address": {args[0]}}
			if reason != "" {
				query.Set("reason", reason)
			}
			return unsuppressed{args[0], reason}, api.Delete(ctx, suppressionPath, query)
		}),
	}
	return reasonFlag(cmd, &reason, "", "only the one for one reason")
}

func (v unsuppressed) text(w io.Writer) {
	if v.Reason == "" {
		fmt.Fprintf(w, "%s is suppressed no more.\n", printable(v.Address))
		return
	}
	fmt.Fprintf(w, "%s is suppressed no more for %s.\n", printable(v.Address), v.Reason)
}
