package ctl

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

	"email-gateway/shared/email"
	"email-gateway/shared/store"
)

// lastEvents is how much of its email's timeline a dead letter shows: two attempts.
const lastEvents = 10

func (c *control) deadLetterShow() *cobra.Command {
	var reveal bool
	cmd := &cobra.Command{
		Use: "show ID", Short: "Show a dead letter, or a replay and how far it has come",
		Long: `Shows a dead letter with what its task held, where its email stands now, and the last steps
of that. Given the id of a replay (dlq retry and discard tell it), shows how far that has
come. Addresses are masked; --reveal shows them, and is written down.`,
		Example: "  gatewayctl dlq show 7d1e5a64-0b56-4a3e-8f0d-2f6a8f2f4c11",
		Args:    needs("ID"), ValidArgsFunction: c.completeLetters,
		RunE: c.run(func(ctx context.Context, s *store.Store, args []string) (answer, error) {
			found, err := findLetter(ctx, s, args[0])
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
			if err := c.revealed(ctx, s, reveal, "dlq", company, found.ID.String()); err != nil {
				return nil, err
			}
			return viewLetterDetails(ctx, s, found, !reveal)
		}),
	}
	cmd.Flags().BoolVar(&reveal, "reveal", false, "show addresses in full")
	return cmd
}

// letterDetails is a dead letter by itself.
type letterDetails struct {
	letterView
	Payload     any          `json:"payload"`
	EmailStatus email.Status `json:"emailStatus,omitempty"` // none if the email is not kept any more
	Events      []eventView  `json:"events,omitempty"`      // the last of its timeline

	now      time.Time
	accepted time.Time
	masked   bool
}

func viewLetterDetails(ctx context.Context, s *store.Store, l store.DeadLetter, masked bool) (letterDetails, error) {
	names, err := companyNames(ctx, s)
	if err != nil {
		return letterDetails{}, err
	}
	v := letterDetails{letterView: viewLetter(l, names, masked), now: time.Now(), masked: masked}
	decoder := json.NewDecoder(bytes.NewReader(l.Payload))
	decoder.UseNumber()
	if err := decoder.Decode(&v.Payload); err != nil {
		return letterDetails{}, fmt.Errorf("read payload: %w", err)
	}
	email.MaskHashes(v.Payload)
	if masked {
		v.Payload = mask(v.Payload)
	}
	if l.Target != email.TargetSend || l.OutboxID == nil {
		return v, nil
	}
	found, err := s.FindSituation(ctx, *l.OutboxID)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return v, nil
	case err != nil:
		return letterDetails{}, err
	}
	events, err := s.Timeline(ctx, *l.OutboxID)
	if err != nil {
		return letterDetails{}, err
	}
	v.EmailStatus, v.accepted, v.now = found.Status, found.CreatedAt.UTC(), found.AskedAt
	v.Events, err = viewTimeline(events[max(0, len(events)-lastEvents):], masked)
	return v, err
}

func (v letterDetails) text(w io.Writer) {
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
	add("given up", moment(v.CreatedAt, v.now))
	add("because", failure(v.Reason, v.Detail))
	add("tries", fmt.Sprint(v.Attempts))
	if v.ResolvedAt != nil {
		add("resolved", moment(*v.ResolvedAt, v.now))
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
	table(w, "  ", rows)
	if payload, err := json.MarshalIndent(v.Payload, "  ", "  "); err == nil { // it came from JSON
		fmt.Fprintf(w, "\nIts task held\n\n  %s\n", payload)
	}
	if len(v.Events) > 0 {
		fmt.Fprintln(w)
		writeTimeline(w, v.accepted, v.Events, email.MaxAttempts)
	}
	if v.masked {
		fmt.Fprintln(w, "\nAddresses are masked; --reveal shows them.")
	}
}
