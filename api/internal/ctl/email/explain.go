package email

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"email-gateway/api/internal/ctl/command"
	"email-gateway/api/internal/ctl/operator"
	"email-gateway/api/internal/ctl/output"
	"email-gateway/shared/email"
	"email-gateway/shared/store"
	"email-gateway/shared/store/emails"
	processstore "email-gateway/shared/store/process"
)

func explainCommand(c *command.Invocation) *cobra.Command {
	return &cobra.Command{
		Use: "explain ID", Short: "Explain an email's status and what happens next",
		Long: `Explains why an email is not sent yet, what happens next and when, and what can be done. It
looks at the email, its lane and company, and at the state that dispatcher and worker last
reported.`,
		Example: "  gatewayctl email explain 01a1fe26-7c3d-7e4f-8a5b-6c7d8e9f0a1b",
		Args:    command.ExactArgs("ID"), ValidArgsFunction: completeEmails(c),
		RunE: operator.Run(c, func(ctx context.Context, s *store.Store, args []string) (output.Result, error) {
			found, err := findEmail(ctx, s, args[0])
			if err != nil {
				return nil, err
			}
			processes, err := s.ProcessStatuses(ctx)
			if err != nil {
				return nil, err
			}
			allowed, err := c.EmailMaxAttempts()
			return explain(found, processes, allowed), err
		}),
	}
}

// explanation lists the findings about an email.
type explanation struct {
	ID       uuid.UUID    `json:"outboxId"`
	Company  string       `json:"company"`
	Status   email.Status `json:"status"`
	AskedAt  time.Time    `json:"askedAt"`
	Findings []finding    `json:"findings"`

	allowed   int // tries
	at        emails.Diagnosis
	processes []processstore.Status
}

// finding is a sentence with a stable code for programs.
type finding struct {
	Code string `json:"code"`
	Text string `json:"text"`
}

// tries formats the tries as email show and email list do.
func (x *explanation) tries() string {
	return email.TriesOf(x.at.Attempts, x.at.Throttles, x.allowed).String()
}

func (x *explanation) add(code, format string, args ...any) {
	x.Findings = append(x.Findings, finding{code, output.Printable(fmt.Sprintf(format, args...))})
}

func (x explanation) WriteText(w io.Writer) {
	fmt.Fprintf(w, "Email %s of %s is %s.\n\n", x.ID, output.Printable(x.Company), x.Status)
	for _, f := range x.Findings {
		fmt.Fprintf(w, "- %s\n", f.Text)
	}
}

// explain diagnoses every status and everything that can block an email.
func explain(at emails.Diagnosis, processes []processstore.Status, allowed int) explanation {
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
		x.add("RELEASED", "It was released without using a try and is due again at %s.", x.relativeTime(*x.at.NextAt))
	case wait > 0 && last == email.EventRescheduled:
		x.add("RESCHEDULED", "It was rescheduled and is due at %s.", x.relativeTime(*x.at.NextAt))
	case wait > 0:
		x.add("SCHEDULED", "It is scheduled and due at %s.", x.relativeTime(*x.at.NextAt))
	case free:
		x.add("DUE", "It has been due for %s: the dispatcher queues it within a second once the queue's window has room.", x.since(*x.at.NextAt))
	default:
		x.add("DUE", "It has been due for %s and is queued once nothing blocks it any more.", x.since(*x.at.NextAt))
	}
	x.deadline()
}

func (x *explanation) enqueued() {
	waited := x.at.AskedAt.Sub(x.at.CreatedAt)
	if x.at.EnqueuedAt != nil {
		waited = x.at.AskedAt.Sub(*x.at.EnqueuedAt)
	}
	x.add("ENQUEUED", "A task for it has been on the queue %s for %s.", output.Optional(x.at.Queue), output.Duration(waited))
	if x.overdue() {
		return
	}
	held := x.held()
	if held {
		x.add("WILL_BE_RETURNED", "The worker that takes the task will release the email to the dispatcher, where it waits until nothing blocks it any more.")
	}
	if able := x.worker(); able && !held {
		if waited > longInQueue {
			x.add("LONG_IN_QUEUE", "That is unusually long. Either many tasks are queued before it or Redis has lost its task: see the queue at /monitoring on a worker's address.")
		} else {
			x.add("NEXT_WORKER", "A worker will take it when its turn comes.")
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
		x.add("EXPIRES_FIRST", "Try %d of %d would be due at %s, but that is after its deadline: it will become EXPIRED.", next, x.allowed, x.relativeTime(*x.at.NextAt))
	case late <= 0:
		x.add("NEXT_TRY", "Try %d of %d is due at %s.", next, x.allowed, x.relativeTime(*x.at.NextAt))
	case late <= retryLost || held:
		x.add("NEXT_TRY", "Try %d of %d has been due for %s.", next, x.allowed, output.Duration(late))
	case x.at.EnqueuedAt == nil:
		x.add("NEXT_TRY", "Try %d of %d has been due for %s and waits for the dispatcher.", next, x.allowed, output.Duration(late))
		x.dispatcher()
	default:
		x.add("RETRY_LOST", "Try %d of %d has been due for %s but no worker took it: its task is considered lost, and the dispatcher queues it again.",
			next, x.allowed, output.Duration(late))
		x.dispatcher()
	}
	if x.at.Throttles > 0 {
		x.add("THROTTLES", "Tries: %s. Tries that failed because of a quota or an outage do not count towards the limit: such an email is retried until its deadline.",
			x.tries())
	}
	x.worker()
	x.deadline()
}

func (x *explanation) processing() {
	left := x.at.LeaseUntil.Sub(x.at.AskedAt)
	if left > 0 {
		x.add("IN_WORK", "A worker is sending it; the provider call times out after 30 s. The worker's lease runs until %s.", x.relativeTime(*x.at.LeaseUntil))
		return
	}
	x.add("LEASE_ENDED", "The lease of the worker that was sending it expired %s ago without a recorded result: the worker has stopped or cannot reach the database. A dispatcher ends this attempt.",
		output.Duration(-left))
	x.dispatcher()
	x.add("MAY_HAVE_BEEN_SENT", "The provider may have accepted it. The attemptId of its last SENT_ATTEMPT in `gatewayctl email show %s` is the tag attempt_id in SES's event history.", x.ID)
	x.delivery()
}

func (x *explanation) outcomeUnknown() {
	x.add("OUTCOME_UNKNOWN", "The request was sent to the provider, but no usable response came back: the provider may have accepted it.")
	x.delivery()
	x.lastError()
}

// delivery reports what follows an attempt with an unknown outcome.
func (x *explanation) delivery() {
	if x.at.DeliveryPolicy != nil && *x.at.DeliveryPolicy == email.AtMostOnce {
		x.add("AT_MOST_ONCE", "Its delivery is at_most_once: unless the provider reports it as sent, it becomes FAILED.")
	} else {
		x.add("AT_LEAST_ONCE", "Its delivery is at_least_once: unless the provider reports it as sent, it is sent again, marked as a possible duplicate.")
	}
}

func (x *explanation) final() {
	switch x.at.Status {
	case email.Sent:
		x.sent()
	case email.Failed:
		x.add("FAILED", "It failed %swith %s. Tries: %s.", x.ended(x.at.FailedAt), x.failure(), x.tries())
	case email.Expired:
		x.add("EXPIRED", "Its deadline, %s, passed before the provider accepted it.", x.relativeTime(x.at.ExpiresAt))
		if reason := output.CodeAndReason("", email.MaskText(output.Optional(x.at.ErrorReason))); reason != "" {
			x.add("LAST_ERROR", "An earlier try failed with: %s.", reason)
		}
	case email.Cancelled:
		x.add("CANCELLED", "It was cancelled %sbefore it was sent.", x.ended(x.at.ProcessedAt))
	case email.Suppressed:
		x.add("SUPPRESSED", "It was stopped %sbecause its address is suppressed. It cannot be retried.", x.ended(x.at.ProcessedAt))
	}
	if x.at.Status != email.Sent && x.at.OutcomeUnknown {
		x.add("MAY_HAVE_BEEN_SENT", "The provider may still have accepted it: retrying it may deliver it twice.")
	}
	if x.at.Status.Replayable() {
		x.retry()
	}
}

func (x *explanation) sent() {
	took := ""
	if x.at.SentAt != nil {
		took = fmt.Sprintf(" at %s, %s after the gateway accepted it", x.relativeTime(*x.at.SentAt), output.Duration(x.at.SentAt.Sub(x.at.CreatedAt)))
	}
	x.add("SENT", "The provider accepted it%s; the provider's message id is %s. Tries: %s. No further action is needed.", took, output.Optional(x.at.SESMessageID), x.tries())
	if x.at.PossibleDuplicate {
		x.add("POSSIBLE_DUPLICATE", "It may have been delivered twice: the outcome of an earlier try is unknown.")
	}
}

// retry reports whether and how a final email can be retried.
func (x *explanation) retry() {
	if x.at.Queue == nil || x.at.ErasedAt != nil {
		x.add("PURGED", "Its body has been deleted, so it cannot be retried: the sender must submit it again.")
		return
	}
	x.add("RETRY_POSSIBLE", "To retry it with new tries and a new deadline: gatewayctl email retry %s", x.ID)
	x.held()
}
