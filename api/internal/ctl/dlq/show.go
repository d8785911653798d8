package dlq

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"email-gateway/api/internal/ctl/command"
	"email-gateway/api/internal/ctl/operator"
	"email-gateway/api/internal/ctl/output"
	"email-gateway/api/internal/ctl/timeline"
	"email-gateway/shared/email"
	"email-gateway/shared/store"
	"email-gateway/shared/store/deadletter"
)

// lastEvents is how many timeline events a dead letter shows: those of about two attempts.
const lastEvents = 10

func showCommand(c *command.Invocation) *cobra.Command {
	var reveal bool
	cmd := &cobra.Command{
		Use: "show ID", Short: "Show a dead letter, or the progress of a replay",
		Long: `Shows a dead letter with its task's payload, the current status of its email and the last
events of that email. With the id of a replay (printed by dlq retry and dlq discard), shows
the replay's progress. Addresses are masked; --reveal shows them and writes an audit entry.`,
		Example: "  gatewayctl dlq show 7d1e5a64-0b56-4a3e-8f0d-2f6a8f2f4c11",
		Args:    command.ExactArgs("ID"), ValidArgsFunction: completeDeadLetters(c),
		RunE: operator.Run(c, func(ctx context.Context, s *store.Store, args []string) (output.Result, error) {
			found, err := findDeadLetter(ctx, s, args[0])
			if id, bad := uuid.Parse(args[0]); err != nil && bad == nil {
				replay, missing := s.FindAnyReplay(ctx, id)
				switch {
				case missing == nil:
					return viewReplay(replay), nil
				case !errors.Is(missing, store.ErrNotFound):
					return nil, missing
				}
			}
			if err != nil {
				return nil, err
			}
			company := uuid.Nil
			if found.CompanyID != nil {
				company = *found.CompanyID
			}
			if err := operator.RecordReveal(ctx, c, s, reveal, "dlq", company, found.ID.String()); err != nil {
				return nil, err
			}
			return viewDeadLetterDetails(ctx, s, found, !reveal)
		}),
	}
	cmd.Flags().BoolVar(&reveal, "reveal", false, "show addresses in full; writes an audit entry")
	return cmd
}

// deadLetterDetails is a dead letter as show prints it.
type deadLetterDetails struct {
	deadLetterView
	Payload     any              `json:"payload"`
	EmailStatus email.Status     `json:"emailStatus,omitempty"` // empty if the email was purged
	Events      []timeline.Event `json:"events,omitempty"`      // the last lastEvents of the timeline

	now      time.Time
	accepted time.Time
	masked   bool
}

func viewDeadLetterDetails(ctx context.Context, s *store.Store, l deadletter.Letter, masked bool) (deadLetterDetails, error) {
	names, err := companyNames(ctx, s)
	if err != nil {
		return deadLetterDetails{}, err
	}
	v := deadLetterDetails{deadLetterView: viewDeadLetter(l, names, masked), now: time.Now(), masked: masked}
	decoder := json.NewDecoder(bytes.NewReader(l.Payload))
	decoder.UseNumber()
	if err := decoder.Decode(&v.Payload); err != nil {
		return deadLetterDetails{}, fmt.Errorf("read payload: %w", err)
	}
	email.MaskHashes(v.Payload)
	if masked {
		v.Payload = timeline.Mask(v.Payload)
	}
	if l.Target != email.TargetSend || l.OutboxID == nil {
		return v, nil
	}
	found, err := s.FindEmailDiagnosis(ctx, *l.OutboxID)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return v, nil
	case err != nil:
		return deadLetterDetails{}, err
	}
	events, err := s.Timeline(ctx, *l.OutboxID)
	if err != nil {
		return deadLetterDetails{}, err
	}
	v.EmailStatus, v.accepted, v.now = found.Status, found.CreatedAt.UTC(), found.AskedAt
	v.Events, err = timeline.Events(events[max(0, len(events)-lastEvents):], masked)
	return v, err
}

func (v deadLetterDetails) WriteText(w io.Writer) {
	fmt.Fprintf(w, "Dead letter %s is %s\n\n", v.ID, v.state())
	var rows [][]string
	add := func(name, value string) {
		if value != "" {
			rows = append(rows, []string{name, value})
		}
	}
	if v.CompanyID != nil {
		add("company", v.Company+" ("+v.CompanyID.String()+")")
	}
	add("target", v.Target)
	add("recipient", v.Recipient)
	add("created", output.RelativeTime(v.CreatedAt, v.now))
	add("reason", output.CodeAndReason(v.Reason, v.Detail))
	add("tries", fmt.Sprint(v.Attempts))
	if v.ResolvedAt != nil {
		add("resolved", output.RelativeTime(*v.ResolvedAt, v.now))
	}
	add("by", v.ResolvedBy)
	add("note", v.Note)
	if v.ReplayID != nil {
		add("replay", v.ReplayID.String())
	}
	if v.MailingID != nil {
		add("mailing", v.MailingID.String())
	}
	if v.OutboxID != nil {
		add("outbox id", v.OutboxID.String())
	}
	add("email now", string(v.EmailStatus))
	output.Table(w, "  ", rows)
	if payload, err := json.MarshalIndent(v.Payload, "  ", "  "); err == nil { // it came from JSON
		fmt.Fprintf(w, "\nTask payload\n\n  %s\n", payload)
	}
	if len(v.Events) > 0 {
		fmt.Fprintln(w)
		timeline.Write(w, v.accepted, v.Events, email.MaxAttempts)
	}
	if v.masked {
		fmt.Fprintln(w, "\nAddresses are masked; --reveal shows them.")
	}
}
