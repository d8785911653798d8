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
	cmd := group("dlq", "List, show, retry and discard dead letters",
		`A dead letter is written when processing is given up: an email that FAILED, a recipient
update that the database rejected, a mailing whose job failed, or a task that could not be
decoded. Dead letters of emails are kept for 7 days, those of mailings and recipients for 30.
A dead letter is open until it is retried or discarded.`,
		`  gatewayctl dlq list --company Acme --since 2h
  gatewayctl dlq retry --code SES_MESSAGE_REJECTED --since 2h --yes`)
	cmd.AddCommand(c.deadLetterList(), c.deadLetterShow(), c.deadLetterRetry(), c.deadLetterDiscard())
	return cmd
}

// deadLetterChoice selects dead letters by flags.
type deadLetterChoice struct {
	company, code, target, mailing, recipient, since string
}

func (c *control) deadLetterFlags(cmd *cobra.Command, l *deadLetterChoice) {
	flags := cmd.Flags()
	flags.StringVar(&l.company, "company", "", "only those of this `COMPANY` (id or exact name); default: all companies")
	flags.StringVar(&l.code, "code", "", "only those with this error `CODE`, such as SES_MESSAGE_REJECTED")
	flags.StringVar(&l.target, "target", "", "only those of this `TARGET`: email:send, mailing.process or recipients.upsert")
	flags.StringVar(&l.mailing, "mailing", "", "only those of the mailing with this `ID` and of its emails")
	flags.StringVar(&l.recipient, "recipient", "", "only those of this recipient `ADDRESS`")
	flags.StringVar(&l.since, "since", "", "only those written since this `TIME`: 90m or 36h ago, or 2026-03-01T10:00:00-03:00")
	complete(cmd, "target", targets())
	c.completeCompanyFlag(cmd)
}

func targets() []string {
	return []string{email.TargetSend, email.TargetMailing, email.TargetRecipients}
}

// filter resolves the flags; company is nil for all companies.
func (l *deadLetterChoice) filter(ctx context.Context, s *store.Store) (company *uuid.UUID, f store.LetterFilter, err error) {
	f = store.LetterFilter{Reason: l.code, Target: l.target, Recipient: l.recipient}
	if l.target != "" && !slices.Contains(targets(), l.target) {
		return nil, f, usagef("--target %q must be %s", l.target, strings.Join(targets(), ", "))
	}
	if l.mailing != "" {
		id, err := uuid.Parse(l.mailing)
		if err != nil {
			return nil, f, usagef("--mailing %q is not a mailing id: give the mailingId of the 202 response", l.mailing)
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

// chosen reports whether any flag narrows the selection.
func (l *deadLetterChoice) chosen() bool { return *l != deadLetterChoice{} }

// parseTime parses a timestamp or a duration before now.
func parseTime(flag, text string, now time.Time) (time.Time, error) {
	if ago, err := time.ParseDuration(text); err == nil && ago > 0 {
		return now.Add(-ago), nil
	}
	if t, err := time.Parse(time.RFC3339, text); err == nil {
		return t, nil
	}
	return time.Time{}, usagef("--%s %q must be a duration ago, such as 90m or 36h, or a timestamp with its zone, such as 2026-03-01T10:00:00-03:00", flag, text)
}

// deadLetterView is a dead letter as printed. Its JSON names are those of the HTTP API.
type deadLetterView struct {
	ID         uuid.UUID         `json:"id"`
	CompanyID  *uuid.UUID        `json:"companyId,omitempty"`
	Company    string            `json:"company,omitempty"`
	Target     string            `json:"target"`
	Reason     string            `json:"reason"`
	Detail     string            `json:"detail,omitempty"`
	Attempts   int               `json:"attempts"`
	OutboxID   *uuid.UUID        `json:"outboxId,omitempty"`
	MailingID  *uuid.UUID        `json:"mailingId,omitempty"`
	Recipient  string            `json:"recipient,omitempty"` // masked unless --reveal
	CreatedAt  time.Time         `json:"createdAt"`
	ResolvedAt *time.Time        `json:"resolvedAt,omitempty"`
	Resolution *store.Resolution `json:"resolution,omitempty"`
	ResolvedBy string            `json:"resolvedBy,omitempty"`
	Note       string            `json:"note,omitempty"`
	ReplayID   *uuid.UUID        `json:"replayId,omitempty"`
}

func viewDeadLetter(l store.DeadLetter, names map[uuid.UUID]string, masked bool) deadLetterView {
	v := deadLetterView{
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

// state describes the resolution in one word.
func (v deadLetterView) state() string {
	switch {
	case v.ResolvedAt == nil:
		return "open"
	case v.Resolution == nil:
		return "resolved"
	}
	return string(*v.Resolution)
}

// companyNames maps the ids of all companies to their names.
func companyNames(ctx context.Context, s *store.Store) (map[uuid.UUID]string, error) {
	all, err := s.Companies(ctx)
	names := make(map[uuid.UUID]string, len(all))
	for _, company := range all {
		names[company.ID] = company.Name
	}
	return names, err
}

type deadLetterList struct {
	Letters []deadLetterView `json:"deadLetters"`
	More    bool             `json:"more"`
}

func (c *control) deadLetterList() *cobra.Command {
	var choice deadLetterChoice
	var all, reveal bool
	var limit int
	cmd := &cobra.Command{
		Use: "list", Short: "List dead letters, newest first",
		Long: `Lists open dead letters, newest first; --all includes resolved ones. Addresses are masked;
--reveal shows them and writes an audit entry.`,
		Example: `  gatewayctl dlq list
  gatewayctl dlq list --company Acme --code SES_MESSAGE_REJECTED --since 2h --limit 500 --json`,
		Args: exactArgs(),
		RunE: c.run(func(ctx context.Context, s *store.Store, _ []string) (answer, error) {
			if err := checkLimit(limit); err != nil {
				return nil, err
			}
			if err := c.revealed(ctx, s, reveal, "dlq", uuid.Nil, ""); err != nil {
				return nil, err
			}
			return listDeadLetters(ctx, s, &choice, all, limit, !reveal)
		}),
	}
	c.deadLetterFlags(cmd, &choice)
	cmd.Flags().BoolVar(&all, "all", false, "include resolved dead letters")
	limitFlag(cmd, &limit)
	cmd.Flags().BoolVar(&reveal, "reveal", false, "show addresses in full; writes an audit entry")
	return cmd
}

func listDeadLetters(ctx context.Context, s *store.Store, choice *deadLetterChoice, all bool, limit int, masked bool) (answer, error) {
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
	list := deadLetterList{Letters: []deadLetterView{}}
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
			list.Letters = append(list.Letters, viewDeadLetter(l, names, masked))
		}
		q.Cursor = page.Next
		list.More = page.Next != (store.LetterCursor{})
		if !list.More || len(list.Letters) == limit {
			return list, nil
		}
	}
}

func (v deadLetterList) text(w io.Writer) {
	if len(v.Letters) == 0 {
		fmt.Fprintln(w, "No dead letters found.")
		return
	}
	rows := [][]string{{"ID", "CREATED", "COMPANY", "TARGET", "REASON", "TRIES", "RECIPIENT", "STATE"}}
	for _, l := range v.Letters {
		rows = append(rows, []string{l.ID.String(), stamp(l.CreatedAt), l.Company, l.Target, l.Reason, fmt.Sprint(l.Attempts), l.Recipient, l.state()})
	}
	table(w, "", rows)
	printMore(w, v.More)
}

// findDeadLetter finds the dead letter with the given id.
func findDeadLetter(ctx context.Context, s *store.Store, given string) (store.DeadLetter, error) {
	id, err := uuid.Parse(given)
	if err != nil {
		return store.DeadLetter{}, usagef("%q is not a dead letter id: run `gatewayctl dlq list` to see them", given)
	}
	found, err := s.FindAnyDeadLetter(ctx, id)
	if errors.Is(err, store.ErrNotFound) {
		return store.DeadLetter{}, noSuchDeadLetter(id)
	}
	return found, err
}

func noSuchDeadLetter(id uuid.UUID) error {
	return fmt.Errorf("dead letter %s not found: those of emails are kept for 7 days, those of mailings and recipients for 30; run `gatewayctl dlq list` to see them", id)
}
