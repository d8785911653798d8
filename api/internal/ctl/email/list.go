package email

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
	"email-gateway/api/internal/ctl/operator"
	"email-gateway/api/internal/ctl/output"
	"email-gateway/api/internal/ctl/role"
	"email-gateway/api/internal/ctl/tenant"
	"email-gateway/shared/email"
	"email-gateway/shared/store"
	"email-gateway/shared/store/emails"
)

// emailChoice holds the flags of email list.
type emailChoice struct {
	company, status, delivery, recipient, tag, externalID, requestID, since, until, updated string
	limit                                                                                   int
	reveal                                                                                  bool
}

type emailList struct {
	Emails []emailSummary `json:"emails"`
	More   bool           `json:"more"`
}

func listCommand(c *command.Invocation) *cobra.Command {
	var choice emailChoice
	cmd := &cobra.Command{
		Use: "list", Short: "List emails, newest first",
		Long: `Lists the emails that match all flags, newest first. An operator names the company and sees
addresses masked unless --reveal is given; a tenant sees its own emails.
` + role.Help,
		Example: `  gatewayctl email list --company Acme --status FAILED --since 2h
  gatewayctl email list --as tenant --recipient maria@cliente.example`,
		Args: command.ExactArgs(),
	}
	addFlags(c, cmd, &choice)
	return role.Command(c, cmd, role.Actions{
		Operator: func(ctx context.Context, s *store.Store, _ []string) (output.Result, error) {
			return listEmailsOf(ctx, c, s, &choice)
		},
		Tenant: func(ctx context.Context, api *client.Client, _ []string) (output.Result, error) {
			query, err := choice.query(time.Now())
			if err != nil {
				return nil, err
			}
			found, more, err := tenant.Pages[emailSummary](ctx, api, emailPath+"s", "emails", query, choice.limit)
			return emailList{found, more}, err
		},
	})
}

func addFlags(c *command.Invocation, cmd *cobra.Command, e *emailChoice) {
	flags := cmd.Flags()
	flags.StringVar(&e.company, "company", "", "operators only: the `COMPANY` (id or exact name)")
	flags.StringVar(&e.status, "status", "", "only emails with this `STATUS`, such as FAILED")
	flags.StringVar(&e.delivery, "delivery", "", "only emails with this delivery `STATE`, such as bounced")
	flags.StringVar(&e.recipient, "recipient", "", "only emails to this `ADDRESS`")
	flags.StringVar(&e.tag, "tag", "", "only emails with this `TAG`")
	flags.StringVar(&e.externalID, "external-id", "", "only emails whose recipient has this external `ID`")
	flags.StringVar(&e.requestID, "request-id", "", "only emails of the request with this `ID`")
	flags.StringVar(&e.since, "since", "", "only emails since this `TIME`: 90m or 36h ago, or 2026-03-01T10:00:00-03:00")
	flags.StringVar(&e.until, "until", "", "only emails before this `TIME`")
	flags.StringVar(&e.updated, "updated-since", "", "only emails accepted, or with an event, since this `TIME`")
	flags.BoolVar(&e.reveal, "reveal", false, "operators only: show addresses in full; writes an audit entry")
	command.LimitFlag(cmd, &e.limit)
	command.CompleteFlag(cmd, "status", statuses())
	command.CompleteFlag(cmd, "delivery", deliveries())
	operator.CompleteCompanyFlag(c, cmd)
}

func statuses() []string {
	var names []string
	for _, s := range email.Statuses() {
		names = append(names, string(s))
	}
	return names
}

func deliveries() []string {
	var names []string
	for _, s := range email.DeliveryStates() {
		names = append(names, string(s))
	}
	return names
}

// check validates the flags and parses the times, which are zero if not given.
func (e *emailChoice) check(now time.Time) (since, until, updated time.Time, err error) {
	if err := command.CheckLimit(e.limit); err != nil {
		return since, until, updated, err
	}
	if e.delivery != "" && !slices.Contains(deliveries(), e.delivery) {
		return since, until, updated, command.Usagef("--delivery %q must be one of %s", e.delivery, strings.Join(deliveries(), ", "))
	}
	if e.status != "" && !slices.Contains(statuses(), e.status) {
		return since, until, updated, command.Usagef("--status %q must be one of %s", e.status, strings.Join(statuses(), ", "))
	}
	if e.since != "" {
		if since, err = command.ParseTime("since", e.since, now); err != nil {
			return since, until, updated, err
		}
	}
	if e.until != "" {
		if until, err = command.ParseTime("until", e.until, now); err != nil {
			return since, until, updated, err
		}
	}
	if e.updated != "" {
		updated, err = command.ParseTime("updated-since", e.updated, now)
	}
	return since, until, updated, err
}

// query builds the query of the HTTP API.
func (e *emailChoice) query(now time.Time) (url.Values, error) {
	if e.company != "" || e.reveal {
		return nil, command.Usagef("--company and --reveal are only for operators: tenants list only their own emails, and addresses are not masked")
	}
	since, until, updated, err := e.check(now)
	if err != nil {
		return nil, err
	}
	query := url.Values{}
	set := func(name, value string) {
		if value != "" {
			query.Set(name, value)
		}
	}
	set("status", e.status)
	set("delivery", e.delivery)
	set("recipient", e.recipient)
	set("tag", e.tag)
	set("externalId", e.externalID)
	set("requestId", e.requestID)
	if !since.IsZero() {
		set("createdAfter", since.UTC().Format(time.RFC3339Nano))
	}
	if !until.IsZero() {
		set("createdBefore", until.UTC().Format(time.RFC3339Nano))
	}
	if !updated.IsZero() {
		set("updatedAfter", updated.UTC().Format(time.RFC3339Nano))
	}
	return query, nil
}

// filter builds the filter of the database query.
func (e *emailChoice) filter(now time.Time) (emails.Filter, error) {
	since, until, updated, err := e.check(now)
	return emails.Filter{
		Delivery: email.DeliveryState(e.delivery), UpdatedAfter: updated,
		From: firstID(since), Until: firstID(until), Status: email.Status(e.status),
		Tag: e.tag, Recipient: e.recipient, ExternalID: e.externalID, RequestID: e.requestID,
	}, err
}

// firstID returns the smallest UUIDv7 of the first whole millisecond at or after t, or the
// zero id for the zero time.
func firstID(t time.Time) (id uuid.UUID) {
	if t.IsZero() {
		return id
	}
	ms := max(t.Add(time.Millisecond-1).UnixMilli(), 1)
	for i := range 6 {
		id[i] = byte(ms >> (40 - 8*i))
	}
	return id
}

// listEmailsOf lists one company's emails for an operator.
func listEmailsOf(ctx context.Context, c *command.Invocation, s *store.Store, choice *emailChoice) (output.Result, error) {
	if choice.company == "" {
		return nil, command.Usagef("--company is required: run `gatewayctl company list` to see all companies")
	}
	filter, err := choice.filter(time.Now())
	if err != nil {
		return nil, err
	}
	company, err := operator.FindCompany(ctx, s, choice.company)
	if err != nil {
		return nil, err
	}
	if err := operator.RecordReveal(ctx, c, s, choice.reveal, "email", company.ID, ""); err != nil {
		return nil, err
	}
	allowed, err := c.EmailMaxAttempts()
	if err != nil {
		return nil, err
	}
	list := emailList{Emails: []emailSummary{}}
	for {
		filter.Limit = min(choice.limit-len(list.Emails), tenant.PageSize)
		page, err := s.ListEmails(ctx, company.ID, filter)
		if err != nil {
			return nil, err
		}
		for _, e := range page.Emails {
			list.Emails = append(list.Emails, summarize(e, allowed, !choice.reveal))
		}
		filter.Before, list.More = page.Next, page.Next != uuid.Nil
		if !list.More || len(list.Emails) >= choice.limit {
			return list, nil
		}
	}
}

func (v emailList) WriteText(w io.Writer) {
	if len(v.Emails) == 0 {
		fmt.Fprintln(w, "No emails found.")
		return
	}
	rows := [][]string{{"ID", "ACCEPTED", "STATUS", "DELIVERY", "TO", "SUBJECT", "TRIES", "LAST ERROR"}}
	for _, e := range v.Emails {
		rows = append(rows, []string{e.ID.String(), output.Timestamp(e.CreatedAt), string(e.Status), string(e.Delivery), e.To, e.Subject, e.Tries.String(), e.ErrorCode})
	}
	output.Table(w, "", rows)
	output.PrintMore(w, v.More)
}

// completeEmails offers the tenant's newest emails. It offers none to operators, whose
// list would span all companies.
func completeEmails(c *command.Invocation) command.Completion {
	return tenant.Complete(c, emailPath+"s", "emails", func(e emailSummary) string {
		return e.ID.String() + "\t" + string(e.Status) + ", " + output.Printable(e.Subject)
	})
}
