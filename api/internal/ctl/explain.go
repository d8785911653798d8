package ctl

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"email-gateway/shared/email"
	"email-gateway/shared/store"
)

func (c *control) emailExplain() *cobra.Command {
	return &cobra.Command{
		Use: "explain ID", Short: "Say why an email is where it is, and what happens next",
		Long: `Says in plain sentences why an email is not sent yet, what happens next and when, and what
a person can do. It looks at the email, its lane, its company, and at what dispatcher
and worker last reported of themselves.`,
		Example: "  gatewayctl email explain 01a1fe26-7c3d-7e4f-8a5b-6c7d8e9f0a1b",
		Args:    needs("ID"), ValidArgsFunction: c.completeEmails,
		RunE: c.run(func(ctx context.Context, s *store.Store, args []string) (answer, error) {
			found, err := findEmail(ctx, s, args[0])
			if err != nil {
				return nil, err
			}
			processes, err := s.ProcessStatuses(ctx)
			if err != nil {
				return nil, err
			}
			allowed, err := c.attempts()
			return explain(found, processes, allowed), err
		}),
	}
}

// explanation is what there is to say about an email.
type explanation struct {
	ID       uuid.UUID    `json:"outboxId"`
	Company  string       `json:"company"`
	Status   email.Status `json:"status"`
	AskedAt  time.Time    `json:"askedAt"`
	Findings []finding    `json:"findings"`

	allowed   int // tries
	at        store.Situation
	processes []store.ProcessStatus
}

// finding is one sentence, with a code that programs can rely on.
type finding struct {
	Code string `json:"code"`
	Text string `json:"text"`
}

// tries are stated as email show and email list state them.
func (x *explanation) tries() string {
	return email.TriesOf(x.at.Attempts, x.at.Throttles, x.allowed).String()
}

func (x *explanation) say(code, format string, args ...any) {
	x.Findings = append(x.Findings, finding{code, printable(fmt.Sprintf(format, args...))})
}

func (x explanation) text(w io.Writer) {
	fmt.Fprintf(w, "Email %s of %s is %s.\n\n", x.ID, printable(x.Company), x.Status)
	for _, f := range x.Findings {
		fmt.Fprintf(w, "- %s\n", f.Text)
	}
}

// explain knows every status and everything that can stand in its way.
func explain(at store.Situation, processes []store.ProcessStatus, allowed int) explanation {
	x := explanation{
		ID: at.ID, Company: at.CompanyName, Status: at.Status, AskedAt: at.AskedAt.UTC(),
		Findings: []finding{}, allowed: allowed, at: at, processes: processes,
	}
	switch at.Status {
	case email.Pending:
		x.pending()
	case email.Enqueued:
		x.enqueued()
	case email.RetryScheduled:
		x.retryScheduled()
	case email.Processing:
		x.processing()
	case email.OutcomeUnknown:
		x.outcomeUnknown()
	default:
		x.final()
	}
	return x
}

func (x *explanation) pending() {
	x.lastError()
	if x.overdue() {
		return
	}
	free := !x.held()
	free = x.dispatcher() && free
	var last email.EventType
	if x.at.LastEvent != nil {
		last = *x.at.LastEvent
	}
	switch wait := x.at.NextAt.Sub(x.at.AskedAt); {
	case wait > 0 && last == email.EventReleased:
		x.say("RELEASED", "It was given back without spending a try, and is due again at %s.", x.moment(*x.at.NextAt))
	case wait > 0 && last == email.EventRescheduled:
		x.say("RESCHEDULED", "It was moved to another time: it is due at %s.", x.moment(*x.at.NextAt))
	case wait > 0:
		x.say("SCHEDULED", "It is scheduled: it is due at %s.", x.moment(*x.at.NextAt))
	case free:
		x.say("DUE", "It has been due for %s: the dispatcher queues it within a second, as soon as the queue's window has room.", x.since(*x.at.NextAt))
	default:
		x.say("DUE", "It has been due for %s, and goes on as soon as nothing holds it any more.", x.since(*x.at.NextAt))
	}
	x.deadline()
}

func (x *explanation) enqueued() {
	waited := x.at.AskedAt.Sub(x.at.CreatedAt)
	if x.at.EnqueuedAt != nil {
		waited = x.at.AskedAt.Sub(*x.at.EnqueuedAt)
	}
	x.say("ENQUEUED", "A task for it has been on the queue %s for %s.", text(x.at.Queue), span(waited))
	if x.overdue() {
		return
	}
	held := x.held()
	if held {
		x.say("WILL_BE_RETURNED", "The worker that takes the task gives the email back to the dispatcher, to wait there until nothing holds it any more.")
	}
	if able := x.worker(); able && !held {
		if waited > longInQueue {
			x.say("LONG_IN_QUEUE", "That is long. Either many tasks are queued before it, or Redis has lost its task: /monitoring on a worker's address shows the queue.")
		} else {
			x.say("NEXT_WORKER", "A worker takes it in its turn.")
		}
	}
	x.deadline()
}

func (x *explanation) retryScheduled() {
	x.lastError()
	if x.overdue() {
		return
	}
	held := x.held()
	next := x.at.Attempts - x.at.Throttles + 1
	late := x.at.AskedAt.Sub(*x.at.NextAt)
	switch {
	case late <= 0 && x.at.NextAt.After(x.at.ExpiresAt):
		x.say("EXPIRES_FIRST", "Try %d of %d would be due at %s, but that is after its deadline: it will end as EXPIRED.", next, x.allowed, x.moment(*x.at.NextAt))
	case late <= 0:
		x.say("NEXT_TRY", "Try %d of %d is due at %s.", next, x.allowed, x.moment(*x.at.NextAt))
	case late <= retryLost || held:
		x.say("NEXT_TRY", "Try %d of %d has been due for %s.", next, x.allowed, span(late))
	case x.at.EnqueuedAt == nil:
		x.say("NEXT_TRY", "Try %d of %d has been due for %s and waits for the dispatcher.", next, x.allowed, span(late))
		x.dispatcher()
	default:
		x.say("RETRY_LOST", "Try %d of %d has been due for %s and no worker came: its task counts as lost, and the dispatcher queues it again.",
			next, x.allowed, span(late))
		x.dispatcher()
	}
	if x.at.Throttles > 0 {
		x.say("THROTTLES", "Tries: %s. Those that a quota refused or an outage ended do not count: only the deadline ends an email that the provider cannot take.",
			x.tries())
	}
	x.worker()
	x.deadline()
}

func (x *explanation) processing() {
	left := x.at.LeaseUntil.Sub(x.at.AskedAt)
	if left > 0 {
		x.say("IN_WORK", "A worker has it and asks the provider, for 30 s at most. Its lease runs until %s.", x.moment(*x.at.LeaseUntil))
		return
	}
	x.say("LEASE_ENDED", "The lease of the worker that had it ended %s ago, and no answer of the provider was written down: that worker has ended, or cannot reach the database.",
		span(-left))
	x.say("MAY_HAVE_BEEN_SENT", "The provider may have taken it, so no program sends it again by itself. The attemptId of its last SENT_ATTEMPT in `gatewayctl email show %s` is the tag attempt_id in SES's event history.", x.ID)
}

func (x *explanation) outcomeUnknown() {
	x.say("OUTCOME_UNKNOWN", "The request left for the provider and no usable answer came back: it may have been taken.")
	if x.at.Delivery != nil && *x.at.Delivery == email.AtMostOnce {
		x.say("AT_MOST_ONCE", "Its delivery is at_most_once: unless the provider reports it as sent, it ends as FAILED.")
	} else {
		x.say("AT_LEAST_ONCE", "Its delivery is at_least_once: unless the provider reports it as sent, it is tried again, marked as a possible duplicate.")
	}
	x.lastError()
}

func (x *explanation) final() {
	switch x.at.Status {
	case email.Sent:
		x.sent()
	case email.Failed:
		x.say("FAILED", "It failed %swith %s. Tries: %s.", x.ended(x.at.FailedAt), x.failure(), x.tries())
	case email.Expired:
		x.say("EXPIRED", "Its deadline, %s, passed before the provider took it.", x.moment(x.at.ExpiresAt))
		if reason := failure("", email.MaskText(text(x.at.ErrorReason))); reason != "" {
			x.say("LAST_ERROR", "Before that, a try had ended in: %s.", reason)
		}
	case email.Cancelled:
		x.say("CANCELLED", "It was withdrawn %swhile it waited.", x.ended(x.at.ProcessedAt))
	case email.Suppressed:
		x.say("SUPPRESSED", "It was stopped %sbecause its address must not be mailed. It cannot be sent again.", x.ended(x.at.ProcessedAt))
	}
	if x.at.Status != email.Sent && x.at.OutcomeUnknown {
		x.say("MAY_HAVE_BEEN_SENT", "The provider may have taken it all the same: sending it again may deliver it twice.")
	}
	if x.at.Status.Replayable() {
		x.retry()
	}
}

func (x *explanation) sent() {
	took := ""
	if x.at.SentAt != nil {
		took = fmt.Sprintf(" at %s, %s after it was accepted here", x.moment(*x.at.SentAt), span(x.at.SentAt.Sub(x.at.CreatedAt)))
	}
	x.say("SENT", "The provider took it%s; its id there is %s. Tries: %s. Nothing is left to do.", took, text(x.at.SESMessageID), x.tries())
	if x.at.PossibleDuplicate {
		x.say("POSSIBLE_DUPLICATE", "It may have been delivered twice: the outcome of an earlier try was never known.")
	}
}

// retry says what a person can do about an email that was given up.
func (x *explanation) retry() {
	if x.at.Queue == nil || x.at.ErasedAt != nil {
		x.say("PURGED", "Its body has been purged since, so it cannot be sent again from here: its sender must send it anew.")
		return
	}
	x.say("RETRY_POSSIBLE", "To send it again with new tries and a new deadline: gatewayctl email retry %s", x.ID)
	x.held()
}
