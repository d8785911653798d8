package httpapi_test

import (
	"testing"
	"time"

	"github.com/google/uuid"

	"email-gateway/shared/email"
	"email-gateway/shared/store/event"
	"email-gateway/shared/store/outbox"
	"email-gateway/shared/store/storetest"
	"email-gateway/shared/store/usage"
)

// otherPrograms does what workers and dispatchers do to the database.
type otherPrograms struct{ storetest.Database }

// advance changes an email as a worker would.
func (w otherPrograms) advance(tb testing.TB, id string, t outbox.Transition) {
	tb.Helper()
	t.ID = uuid.MustParse(id)
	moved, err := w.Store.Advance(tb.Context(), t)
	if err != nil || !moved.Applied {
		tb.Fatalf("%+v, %v", moved, err)
	}
}

// claim and giveUp are a failed try.
func (w otherPrograms) claim(tb testing.TB, id string) uuid.UUID {
	tb.Helper()
	token := uuid.New()
	w.advance(tb, id, outbox.Transition{
		Guard: outbox.GuardClaim, Token: token, Status: email.Processing, AddAttempts: 1,
		Events: events(email.EventReceived, email.EventValidated, email.EventSentAttempt),
	})
	return token
}

func (w otherPrograms) giveUp(tb testing.TB, id string) {
	tb.Helper()
	w.advance(tb, id, outbox.Transition{
		Guard: outbox.GuardAttempt, Token: w.claim(tb, id), Status: email.Failed, Events: events(email.EventFailed),
		ErrorCode: "SES_BAD_REQUEST", ErrorReason: "no", Duration: 12 * time.Millisecond, DeadLetter: true,
	})
}

// assign gives all committed events their positions, as the dispatcher does.
func (w otherPrograms) assign(tb testing.TB) {
	tb.Helper()
	feed := event.New(w.Store.DB())
	for {
		n, err := feed.AssignPositions(tb.Context(), 1000)
		if err != nil {
			tb.Fatal(err)
		}
		if n == 0 {
			return
		}
	}
}

// intakes returns the ids of the rows that wait for RabbitMQ, in order of acceptance.
func (w otherPrograms) intakes(tb testing.TB) []uuid.UUID {
	tb.Helper()
	rows, err := w.SQL.QueryContext(tb.Context(), `SELECT o.id FROM email_outbox o JOIN recipient_intakes i ON i.outbox_id = o.id WHERE o.target = 'recipients.upsert' ORDER BY o.id`)
	if err != nil {
		tb.Fatal(err)
	}
	defer rows.Close()
	var ids []uuid.UUID
	for rows.Next() {
		var id uuid.UUID
		if err := rows.Scan(&id); err != nil {
			tb.Fatal(err)
		}
		ids = append(ids, id)
	}
	if err := rows.Err(); err != nil {
		tb.Fatal(err)
	}
	return ids
}

// storeRecipients stores the recipients as a worker would.
func (w otherPrograms) storeRecipients(tb testing.TB) {
	tb.Helper()
	for _, err := range w.Store.UpsertRecipients(tb.Context(), w.intakes(tb)) {
		if err != nil {
			tb.Error(err)
		}
	}
}

// fold counts what the dispatcher counts.
func (w otherPrograms) fold(tb testing.TB) {
	tb.Helper()
	w.assign(tb)
	s := usage.New(w.Store.DB())
	if _, err := w.Store.FoldQuotas(tb.Context(), 1000, true); err != nil {
		tb.Fatal(err)
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
			return
		}
	}
}
