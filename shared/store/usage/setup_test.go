package usage_test

import (
	"testing"
	"time"

	"github.com/google/uuid"

	"email-gateway/shared/email"
	"email-gateway/shared/store/event"
	"email-gateway/shared/store/feedback"
	"email-gateway/shared/store/outbox"
	"email-gateway/shared/store/storetest"
	"email-gateway/shared/store/usage"
)

// send accepts an email, claims it and records the outcome. It returns its id and attempt.
func send(tb testing.TB, d storetest.Database, company uuid.UUID, status email.Status) (id, attempt uuid.UUID) {
	tb.Helper()
	id = d.Accept(tb, company, nil)
	return id, attemptOn(tb, d, id, status)
}

// attemptOn claims an email and records the outcome.
func attemptOn(tb testing.TB, d storetest.Database, id uuid.UUID, status email.Status) (attempt uuid.UUID) {
	tb.Helper()
	attempt = uuid.New()
	now := time.Now().UTC()
	last := email.Event{Type: email.EventSent, At: now}
	if status == email.Failed {
		last = email.Event{Type: email.EventFailed, At: now}
	}
	advance(tb, d, outbox.Transition{ID: id, Guard: outbox.GuardClaim, Token: attempt, Status: email.Processing, AddAttempts: 1, Events: []email.Event{
		{Type: email.EventReceived, At: now},
		{Type: email.EventValidated, At: now},
		{Type: email.EventSentAttempt, At: now, Metadata: map[string]any{"attemptId": attempt}},
	}})
	advance(tb, d, outbox.Transition{ID: id, Guard: outbox.GuardAttempt, Token: attempt, Status: status, Events: []email.Event{last}, SESMessageID: "m-" + id.String()})
	return attempt
}

func advance(tb testing.TB, d storetest.Database, t outbox.Transition) {
	tb.Helper()
	done, err := d.Store.Advance(tb.Context(), t)
	if err != nil || !done.Applied {
		tb.Fatalf("%s: %+v, %v", t.Status, done, err)
	}
}

// report records a notification of SES. kind may end in ":" and a complaint's type.
func report(tb testing.TB, d storetest.Database, company, id, attempt uuid.UUID, kind string, kindOfEvent email.EventType, metadata map[string]any) {
	tb.Helper()
	if metadata == nil {
		metadata = map[string]any{}
	}
	metadata["n"] = uuid.NewString() // no two notifications are the same
	_, err := d.Store.RecordFeedback(tb.Context(), feedback.Feedback{
		NotificationID: uuid.NewString(), Kind: kind, SESMessageID: "m-" + id.String(), OutboxID: id, AttemptID: attempt, CompanyID: company,
		OccurredAt: time.Now(), Event: kindOfEvent, Metadata: metadata, Masked: metadata,
	})
	if err != nil {
		tb.Fatal(err)
	}
}

// count does what the dispatcher does every half minute.
func count(tb testing.TB, d storetest.Database) *usage.Store {
	tb.Helper()
	s, feed := usage.New(d.Store.DB()), event.New(d.Store.DB())
	if _, err := d.Store.FoldQuotas(tb.Context(), 1000, true); err != nil {
		tb.Fatal(err)
	}
	for {
		assigned, err := feed.AssignPositions(tb.Context(), 1000)
		if err != nil {
			tb.Fatal(err)
		}
		if assigned == 0 {
			break
		}
	}
	if err := s.AddCompanies(tb.Context(), 1000); err != nil {
		tb.Fatal(err)
	}
	for {
		done, err := s.Fold(tb.Context(), uuid.Nil, 100, 500)
		if err != nil {
			tb.Fatal(err)
		}
		if done.Companies == 0 {
			return s
		}
	}
}

func month(tb testing.TB, s *usage.Store, company uuid.UUID, at time.Time) usage.Month {
	tb.Helper()
	m, err := s.Month(tb.Context(), company, at)
	if err != nil {
		tb.Fatal(err)
	}
	return m
}
