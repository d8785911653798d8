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
	"email-gateway/shared/email"
	"email-gateway/shared/store"
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

func (c *control) emailList() *cobra.Command {
	var choice emailChoice
	cmd := &cobra.Command{
		Use: "list", Short: "List emails, newest first",
		Long: `Lists the emails that match all flags, newest first. An operator names the company and sees
addresses masked unless --reveal is given; a tenant sees its own emails.
` + accessHelp,
		Example: `  gatewayctl email list --company Acme --status FAILED --since 2h
  gatewayctl email list --as tenant --recipient maria@cliente.example`,
		Args: exactArgs(),
	}
	c.emailFlags(cmd, &choice)
	return c.operatorOrTenant(cmd, operatorOrTenant{
		operator: func(ctx context.Context, s *store.Store, _ []string) (answer, error) {
			return c.listEmailsOf(ctx, s, &choice)
		},
		tenant: func(ctx context.Context, api *client.Client, _ []string) (answer, error) {
			query, err := choice.query(time.Now())
			if err != nil {
				return nil, err
			}
			found, more, err := pages[emailSummary](ctx, api, emailPath+"s", "emails", query, choice.limit)
			return emailList{found, more}, err
		},
	})
}

func (c *control) emailFlags(cmd *cobra.Command, e *emailChoice) {
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
	limitFlag(cmd, &e.limit)
	complete(cmd, "status", statuses())
	complete(cmd, "delivery", deliveries())
	c.completeCompanyFlag(cmd)
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
	if err := checkLimit(e.limit); err != nil {
		return since, until, updated, err
	}
	if e.delivery != "" && !slices.Contains(deliveries(), e.delivery) {
		return since, until, updated, usagef("--delivery %q must be one of %s", e.delivery, strings.Join(deliveries(), ", "))
	}
	if e.status != "" && !slices.Contains(statuses(), e.status) {
		return since, until, updated, usagef("--status %q must be one of %s", e.status, strings.Join(statuses(), ", "))
	}
	if e.since != "" {
		if since, err = parseTime("since", e.since, now); err != nil {
			return since, until, updated, err
		}
	}
	if e.until != "" {
		if until, err = parseTime("until", e.until, now); err != nil {
			return since, until, updated, err
		}
	}
	if e.updated != "" {
		updated, err = parseTime("updated-since", e.updated, now)
	}
	return since, until, updated, err
}

// query builds the query of the HTTP API.
func (e *emailChoice) query(now time.Time) (url.Values, error) {
	if e.company != "" || e.reveal {
		return nil, usagef("--company and --reveal are for operators: a tenant sees only its own emails, in full")
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
func (e *emailChoice) filter(now time.Time) (store.EmailFilter, error) {
	since, until, updated, err := e.check(now)
	return store.EmailFilter{
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
func (c *control) listEmailsOf(ctx context.Context, s *store.Store, choice *emailChoice) (answer, error) {
	if choice.company == "" {
		return nil, usagef("--company is required: run `gatewayctl company list` to see all companies")
	}
	filter, err := choice.filter(time.Now())
	if err != nil {
		return nil, err
	}
	company, err := findCompany(ctx, s, choice.company)
	if err != nil {
		return nil, err
	}
	if err := c.revealed(ctx, s, choice.reveal, "email", company.ID, ""); err != nil {
		return nil, err
	}
	allowed, err := c.attempts()
	if err != nil {
		return nil, err
	}
	list := emailList{Emails: []emailSummary{}}
	for {
		filter.Limit = min(choice.limit-len(list.Emails), perPage)
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

func (v emailList) text(w io.Writer) {
	if len(v.Emails) == 0 {
		fmt.Fprintln(w, "No emails found.")
		return
	}
	rows := [][]string{{"ID", "ACCEPTED", "STATUS", "DELIVERY", "TO", "SUBJECT", "TRIES", "LAST ERROR"}}
	for _, e := range v.Emails {
		rows = append(rows, []string{e.ID.String(), stamp(e.CreatedAt), string(e.Status), string(e.Delivery), e.To, e.Subject, e.Tries.String(), e.ErrorCode})
	}
	table(w, "", rows)
	printMore(w, v.More)
}
