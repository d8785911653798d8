package ctl

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"email-gateway/shared/email"
	"email-gateway/shared/store"
)

func (c *control) deadLetter() *cobra.Command {
	cmd := group("dlq", "Look at what was given up, send it again or discard it",
		`A dead letter is written whenever something is given up: an email that FAILED, the news of
a recipient that the database refused, a mailing whose job failed, a task that nobody can
read. It is kept for 7 days, that of a mailing or a recipient for 30, and open until it is
sent again or discarded.`,
		`  gatewayctl dlq list --company Acme --since 2h
  gatewayctl dlq retry --code SES_MESSAGE_REJECTED --since 2h --yes`)
	cmd.AddCommand(c.deadLetterList(), c.deadLetterShow(), c.deadLetterRetry(), c.deadLetterDiscard())
	return cmd
}

// letterChoice is which dead letters an operator means.
type letterChoice struct {
	company, code, target, mailing, recipient, since string
}

func (c *control) letterFlags(cmd *cobra.Command, l *letterChoice) {
	flags := cmd.Flags()
	flags.StringVar(&l.company, "company", "", "those of one `COMPANY`, by id or exact name; without it, of all")
	flags.StringVar(&l.code, "code", "", "those with this `CODE`, such as SES_MESSAGE_REJECTED")
	flags.StringVar(&l.target, "target", "", "those of a `TARGET`: email:send, mailing.process or recipients.upsert")
	flags.StringVar(&l.mailing, "mailing", "", "a mailing's, by its `ID`, and those of its emails")
	flags.StringVar(&l.recipient, "recipient", "", "those to one `ADDRESS`")
	flags.StringVar(&l.since, "since", "", "those given up since a `TIME`: 90m or 36h ago, or as in 2026-03-01T10:00:00-03:00")
	complete(cmd, "target", targets())
	c.completeCompanyFlag(cmd)
}

func targets() []string {
	return []string{email.TargetSend, email.TargetMailing, email.TargetRecipients}
}

// filter is what the flags say; company is nil for all.
func (l *letterChoice) filter(ctx context.Context, s *store.Store) (company *uuid.UUID, f store.LetterFilter, err error) {
	f = store.LetterFilter{Reason: l.code, Target: l.target, Recipient: l.recipient}
	if l.target != "" && !slices.Contains(targets(), l.target) {
		return nil, f, usagef("--target %q must be %s", l.target, strings.Join(targets(), ", "))
	}
	if l.mailing != "" {
		id, err := uuid.Parse(l.mailing)
		if err != nil {
			return nil, f, usagef("--mailing %q is not a mailing's id: give the mailingId of its 202 answer", l.mailing)
		}
		f.MailingID = &id
	}
	if l.since != "" {
		since, err := parseTime("since", l.since, time.Now())
		if err != nil {
			return nil, f, err
		}
		f.CreatedAfter = &since
	}
	if l.company == "" {
		return nil, f, nil
	}
	found, err := findCompany(ctx, s, l.company)
	return &found.ID, f, err
}

// chosen says that some flag narrows the choice.
func (l *letterChoice) chosen() bool { return *l != letterChoice{} }

// parseTime reads a flag's time, or how long ago it was.
func parseTime(flag, text string, now time.Time) (time.Time, error) {
	if ago, err := time.ParseDuration(text); err == nil && ago > 0 {
		return now.Add(-ago), nil
	}
	if t, err := time.Parse(time.RFC3339, text); err == nil {
		return t, nil
	}
	return time.Time{}, usagef("--%s %q must be a time ago, such as 90m or 36h, or a time with its zone, such as 2026-03-01T10:00:00-03:00", flag, text)
}

// letterView is a dead letter. The names are those of the HTTP API.
type letterView struct {
	ID         uuid.UUID         `json:"id"`
	CompanyID  *uuid.UUID        `json:"companyId,omitempty"`
	Company    string            `json:"company,omitempty"`
	Target     string            `json:"target"`
	Reason     string            `json:"reason"`
	Detail     string            `json:"detail,omitempty"`
	Attempts   int               `json:"attempts"`
	OutboxID   *uuid.UUID        `json:"outboxId,omitempty"`
	MailingID  *uuid.UUID        `json:"mailingId,omitempty"`
	Recipient  string            `json:"recipient,omitempty"` // masked unless asked otherwise
	CreatedAt  time.Time         `json:"createdAt"`
	ResolvedAt *time.Time        `json:"resolvedAt,omitempty"`
	Resolution *store.Resolution `json:"resolution,omitempty"`
	ResolvedBy string            `json:"resolvedBy,omitempty"`
	Note       string            `json:"note,omitempty"`
	ReplayID   *uuid.UUID        `json:"replayId,omitempty"`
}

func viewLetter(l store.DeadLetter, names map[uuid.UUID]string, masked bool) letterView {
	v := letterView{
		ID: l.ID, CompanyID: l.CompanyID, Target: l.Target, Reason: l.Reason, Detail: text(l.Detail), Attempts: l.Attempts,
		OutboxID: l.OutboxID, MailingID: l.MailingID, Recipient: text(l.Recipient), CreatedAt: l.CreatedAt.UTC(), ResolvedAt: inUTC(l.ResolvedAt),
		Resolution: l.Resolution, ResolvedBy: text(l.ResolvedBy), Note: text(l.Note), ReplayID: l.ReplayID,
	}
	if l.CompanyID != nil {
		v.Company = names[*l.CompanyID]
	}
	if masked {
		v.Detail = email.MaskText(v.Detail)
		if v.Recipient != "" {
			v.Recipient = email.MaskAddress(v.Recipient)
		}
	}
	return v
}

// state is what has become of it, in a word or two.
func (v letterView) state() string {
	switch {
	case v.ResolvedAt == nil:
		return "open"
	case v.Resolution == nil:
		return "resolved"
	}
	return string(*v.Resolution)
}

// companyNames are those of all companies, by their ids.
func companyNames(ctx context.Context, s *store.Store) (map[uuid.UUID]string, error) {
	all, err := s.Companies(ctx)
	names := make(map[uuid.UUID]string, len(all))
	for _, company := range all {
		names[company.ID] = company.Name
	}
	return names, err
}

type letterList struct {
	Letters []letterView `json:"deadLetters"`
	More    bool         `json:"more"`
}

func (c *control) deadLetterList() *cobra.Command {
	var choice letterChoice
	var all, reveal bool
	var limit int
	cmd := &cobra.Command{
		Use: "list", Short: "List dead letters, newest first",
		Long: `Lists open dead letters, the newest first; --all lists those that are resolved too.
Addresses are masked; --reveal shows them, and is written down.`,
		Example: `  gatewayctl dlq list
  gatewayctl dlq list --company Acme --code SES_MESSAGE_REJECTED --since 2h --limit 500 --json`,
		Args: needs(),
		RunE: c.run(func(ctx context.Context, s *store.Store, _ []string) (answer, error) {
			if err := checkLimit(limit); err != nil {
				return nil, err
			}
			if err := c.revealed(ctx, s, reveal, "dlq", uuid.Nil, ""); err != nil {
				return nil, err
			}
			return listLetters(ctx, s, &choice, all, limit, !reveal)
		}),
	}
	c.letterFlags(cmd, &choice)
	cmd.Flags().BoolVar(&all, "all", false, "those that are resolved too")
	limited(cmd, &limit)
	cmd.Flags().BoolVar(&reveal, "reveal", false, "show addresses in full")
	return cmd
}

func listLetters(ctx context.Context, s *store.Store, choice *letterChoice, all bool, limit int, masked bool) (answer, error) {
	company, filter, err := choice.filter(ctx, s)
	if err != nil {
		return nil, err
	}
	names, err := companyNames(ctx, s)
	if err != nil {
		return nil, err
	}
	q := store.LetterQuery{LetterFilter: filter}
	if !all {
		q.Resolved = new(bool)
	}
	list := letterList{Letters: []letterView{}}
	for {
		q.Limit = limit - len(list.Letters)
		var page store.LetterPage
		if company == nil {
			page, err = s.ListAllDeadLetters(ctx, q)
		} else {
			page, err = s.ListDeadLetters(ctx, *company, q)
		}
		if err != nil {
			return nil, err
		}
		for _, l := range page.Letters {
			list.Letters = append(list.Letters, viewLetter(l, names, masked))
		}
		q.Cursor = page.Next
		list.More = page.Next != (store.LetterCursor{})
		if !list.More || len(list.Letters) == limit {
			return list, nil
		}
	}
}

func (v letterList) text(w io.Writer) {
	if len(v.Letters) == 0 {
		fmt.Fprintln(w, "There are none.")
		return
	}
	rows := [][]string{{"ID", "GIVEN UP AT", "COMPANY", "TARGET", "REASON", "TRIES", "RECIPIENT", "STATE"}}
	for _, l := range v.Letters {
		rows = append(rows, []string{l.ID.String(), stamp(l.CreatedAt), l.Company, l.Target, l.Reason, fmt.Sprint(l.Attempts), l.Recipient, l.state()})
	}
	table(w, "", rows)
	tellMore(w, v.More)
}

// findLetter finds the dead letter that an operator means.
func findLetter(ctx context.Context, s *store.Store, given string) (store.DeadLetter, error) {
	id, err := uuid.Parse(given)
	if err != nil {
		return store.DeadLetter{}, usagef("%q is not a dead letter's id: `gatewayctl dlq list` shows them", given)
	}
	found, err := s.FindAnyDeadLetter(ctx, id)
	if errors.Is(err, store.ErrNotFound) {
		return store.DeadLetter{}, noSuchLetter(id)
	}
	return found, err
}

func noSuchLetter(id uuid.UUID) error {
	return fmt.Errorf("there is no dead letter %s: they are kept for 7 days, those of mailings and recipients for 30, and `gatewayctl dlq list` shows them", id)
}
