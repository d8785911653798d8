// Package dlq implements gatewayctl dlq: operators list, show, retry and discard dead letters.
package dlq

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"email-gateway/api/internal/ctl/command"
	"email-gateway/api/internal/ctl/operator"
	"email-gateway/api/internal/ctl/output"
	"email-gateway/shared/email"
	"email-gateway/shared/store"
	"email-gateway/shared/store/deadletter"
)

// Command returns the command `gatewayctl dlq` with its subcommands.
func Command(c *command.Invocation) *cobra.Command {
	cmd := command.Group("dlq", "List, show, retry and discard dead letters",
		`A dead letter is written when processing is given up: an email that FAILED, a recipient
update that the database rejected, a mailing whose job failed, or a task that could not be
decoded. Dead letters of emails are kept for 7 days, those of mailings and recipients for 30.
A dead letter is open until it is retried or discarded.`,
		`  gatewayctl dlq list --company Acme --since 2h
  gatewayctl dlq retry --code SES_MESSAGE_REJECTED --since 2h --yes`)
	cmd.AddCommand(listCommand(c), showCommand(c), retryCommand(c), discardCommand(c))
	return cmd
}

// deadLetterChoice selects dead letters by flags.
type deadLetterChoice struct {
	company, code, target, mailing, recipient, since, until string
}

func addFlags(c *command.Invocation, cmd *cobra.Command, l *deadLetterChoice) {
	flags := cmd.Flags()
	flags.StringVar(&l.company, "company", "", "only those of this `COMPANY` (id or exact name); default: all companies")
	flags.StringVar(&l.code, "code", "", "only those with this error `CODE`, such as SES_MESSAGE_REJECTED")
	flags.StringVar(&l.target, "target", "", "only those of this `TARGET`: email:send, mailing.process or recipients.upsert")
	flags.StringVar(&l.mailing, "mailing", "", "only those of the mailing with this `ID` and of its emails")
	flags.StringVar(&l.recipient, "recipient", "", "only those of this recipient `ADDRESS`")
	flags.StringVar(&l.since, "since", "", "only those written since this `TIME`: 90m or 36h ago, or 2026-03-01T10:00:00-03:00")
	flags.StringVar(&l.until, "until", "", "only those written before this `TIME`")
	command.CompleteFlag(cmd, "target", targets())
	operator.CompleteCompanyFlag(c, cmd)
}

func targets() []string {
	return []string{email.TargetSend, email.TargetMailing, email.TargetRecipients}
}

// filter resolves the flags; company is nil for all companies.
func (l *deadLetterChoice) filter(ctx context.Context, s *store.Store) (company *uuid.UUID, f deadletter.LetterFilter, err error) {
	f = deadletter.LetterFilter{Reason: l.code, Target: l.target, Recipient: l.recipient}
	if l.target != "" && !slices.Contains(targets(), l.target) {
		return nil, f, command.Usagef("--target %q must be %s", l.target, strings.Join(targets(), ", "))
	}
	if l.mailing != "" {
		id, err := uuid.Parse(l.mailing)
		if err != nil {
			return nil, f, command.Usagef("--mailing %q is not a mailing id: give the mailingId of the 202 response", l.mailing)
		}
		f.MailingID = &id
	}
	for _, bound := range []struct {
		flag, value string
		at          **time.Time
	}{{"since", l.since, &f.CreatedAfter}, {"until", l.until, &f.CreatedBefore}} {
		if bound.value == "" {
			continue
		}
		at, err := command.ParseTime(bound.flag, bound.value, time.Now())
		if err != nil {
			return nil, f, err
		}
		*bound.at = &at
	}
	if l.company == "" {
		return nil, f, nil
	}
	found, err := operator.FindCompany(ctx, s, l.company)
	return &found.ID, f, err
}

// chosen reports whether any flag narrows the selection.
func (l *deadLetterChoice) chosen() bool { return *l != deadLetterChoice{} }

// findDeadLetter finds the dead letter with the given id.
func findDeadLetter(ctx context.Context, s *store.Store, given string) (deadletter.Letter, error) {
	id, err := uuid.Parse(given)
	if err != nil {
		return deadletter.Letter{}, command.Usagef("%q is not a dead letter id: run `gatewayctl dlq list` to see them", given)
	}
	found, err := s.FindAnyDeadLetter(ctx, id)
	if errors.Is(err, store.ErrNotFound) {
		return deadletter.Letter{}, noSuchDeadLetter(id)
	}
	return found, err
}

func noSuchDeadLetter(id uuid.UUID) error {
	return fmt.Errorf("dead letter %s not found: those of emails are kept for 7 days, those of mailings and recipients for 30; run `gatewayctl dlq list` to see them", id)
}

func completeDeadLetters(c *command.Invocation) command.Completion {
	return operator.Complete(c, func(ctx context.Context, s *store.Store) (ids []string) {
		page, err := s.ListAllDeadLetters(ctx, deadletter.LetterQuery{Resolved: new(bool), Limit: command.CompletionLimit})
		if err != nil {
			return nil
		}
		for _, l := range page.Letters {
			ids = append(ids, l.ID.String()+"\t"+l.Reason+", "+output.Timestamp(l.CreatedAt))
		}
		return ids
	})
}
