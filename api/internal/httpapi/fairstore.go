package httpapi

import (
	"context"
	"iter"
	"time"

	"github.com/google/uuid"

	"email-gateway/api/internal/httpapi/slots"
	"email-gateway/shared/store/deadletter"
	emailstore "email-gateway/shared/store/emails"
	"email-gateway/shared/store/idempotency"
	mailingstore "email-gateway/shared/store/mailing"
	"email-gateway/shared/store/mailingreport"
	"email-gateway/shared/store/outbox"
	"email-gateway/shared/store/recipient"
	"email-gateway/shared/store/suppression"
)

// fairStore is the store with a concurrency limit per company, so that a company with many or
// slow statements delays only itself. Transitions are not limited here: they wait for locks,
// which the store limits itself. A slow client holds no slot.
type fairStore struct {
	Store
	slots.Slots
}

func newFairStore(s Store, limit slots.Slots) fairStore { return fairStore{Store: s, Slots: limit} }

func (f fairStore) RecipientMatches(ctx context.Context, company, id uuid.UUID, address string) (bool, error) {
	return slots.Run(ctx, f.ForLookUp(), company, func() (bool, error) { return f.Store.RecipientMatches(ctx, company, id, address) })
}

func (f fairStore) FindAnswer(ctx context.Context, company uuid.UUID, route, key string) (idempotency.StoredAnswer, error) {
	return slots.Run(ctx, f.ForLookUp(), company, func() (idempotency.StoredAnswer, error) { return f.Store.FindAnswer(ctx, company, route, key) })
}

func (f fairStore) StoreAnswer(ctx context.Context, company, id uuid.UUID, k idempotency.Key) (idempotency.StoredAnswer, error) {
	return slots.Run(ctx, f.Slots, company, func() (idempotency.StoredAnswer, error) { return f.Store.StoreAnswer(ctx, company, id, k) })
}

func (f fairStore) FindEmail(ctx context.Context, company, id uuid.UUID) (emailstore.Email, error) {
	return slots.Run(ctx, f.Slots, company, func() (emailstore.Email, error) { return f.Store.FindEmail(ctx, company, id) })
}

// timelineOf is Timeline with a slot of the company.
func (f fairStore) timelineOf(ctx context.Context, company, id uuid.UUID) ([]emailstore.TimelineEvent, error) {
	return slots.Run(ctx, f.Slots, company, func() ([]emailstore.TimelineEvent, error) { return f.Timeline(ctx, id) })
}

func (f fairStore) ListEmails(ctx context.Context, company uuid.UUID, filter emailstore.Filter) (emailstore.Page, error) {
	return slots.Run(ctx, f.Slots, company, func() (emailstore.Page, error) { return f.Store.ListEmails(ctx, company, filter) })
}

func (f fairStore) AggregateEmails(ctx context.Context, company uuid.UUID, kind, id string) ([]outbox.AggregateEmail, error) {
	return slots.Run(ctx, f.Slots, company, func() ([]outbox.AggregateEmail, error) { return f.Store.AggregateEmails(ctx, company, kind, id) })
}

func (f fairStore) AcceptRecipients(ctx context.Context, r recipient.NewRecipients) error {
	return f.Do(ctx, r.CompanyID, func() error { return f.Store.AcceptRecipients(ctx, r) })
}

func (f fairStore) FindRecipient(ctx context.Context, company, id uuid.UUID) (recipient.Known, error) {
	return slots.Run(ctx, f.Slots, company, func() (recipient.Known, error) { return f.Store.FindRecipient(ctx, company, id) })
}

func (f fairStore) DeleteRecipient(ctx context.Context, company, id uuid.UUID) error {
	return f.Do(ctx, company, func() error { return f.Store.DeleteRecipient(ctx, company, id) })
}

func (f fairStore) Suppress(ctx context.Context, company uuid.UUID, s suppression.Suppression) error {
	return f.Do(ctx, company, func() error { return f.Store.Suppress(ctx, company, s) })
}

func (f fairStore) AddSuppression(ctx context.Context, company uuid.UUID, s suppression.Suppression) (suppression.Suppression, error) {
	return slots.Run(ctx, f.Slots, company, func() (suppression.Suppression, error) { return f.Store.AddSuppression(ctx, company, s) })
}

func (f fairStore) Unsuppress(ctx context.Context, company uuid.UUID, address string, reason suppression.Reason) error {
	return f.Do(ctx, company, func() error { return f.Store.Unsuppress(ctx, company, address, reason) })
}

func (f fairStore) Suppressions(ctx context.Context, company uuid.UUID, filter suppression.Filter) ([]suppression.Suppression, error) {
	return slots.Run(ctx, f.Slots, company, func() ([]suppression.Suppression, error) { return f.Store.Suppressions(ctx, company, filter) })
}

func (f fairStore) FindMailing(ctx context.Context, company, id uuid.UUID) (mailingstore.Mailing, error) {
	return slots.Run(ctx, f.Slots, company, func() (mailingstore.Mailing, error) { return f.Store.FindMailing(ctx, company, id) })
}

func (f fairStore) ListMailings(ctx context.Context, company, before uuid.UUID, limit int) ([]mailingstore.Mailing, error) {
	return slots.Run(ctx, f.Slots, company, func() ([]mailingstore.Mailing, error) { return f.Store.ListMailings(ctx, company, before, limit) })
}

func (f fairStore) MailingEntries(ctx context.Context, company, id uuid.UUID, filter mailingstore.EntryFilter) ([]mailingstore.Entry, error) {
	return slots.Run(ctx, f.Slots, company, func() ([]mailingstore.Entry, error) { return f.Store.MailingEntries(ctx, company, id, filter) })
}

func (f fairStore) MailingRows(ctx context.Context, company, id uuid.UUID, filter mailingreport.RowFilter) (mailingreport.RowPage, error) {
	return slots.Run(ctx, f.Slots, company, func() (mailingreport.RowPage, error) { return f.Store.MailingRows(ctx, company, id, filter) })
}

func (f fairStore) StartMailing(ctx context.Context, company, id uuid.UUID) (mailingstore.Mailing, error) {
	return slots.Run(ctx, f.Slots, company, func() (mailingstore.Mailing, error) { return f.Store.StartMailing(ctx, company, id) })
}

func (f fairStore) PauseMailing(ctx context.Context, company, id uuid.UUID) (mailingstore.Mailing, error) {
	return slots.Run(ctx, f.Slots, company, func() (mailingstore.Mailing, error) { return f.Store.PauseMailing(ctx, company, id) })
}

func (f fairStore) ResumeMailing(ctx context.Context, company, id uuid.UUID) (mailingstore.Mailing, error) {
	return slots.Run(ctx, f.Slots, company, func() (mailingstore.Mailing, error) { return f.Store.ResumeMailing(ctx, company, id) })
}

func (f fairStore) CancelMailing(ctx context.Context, company, id uuid.UUID) (mailingstore.Mailing, error) {
	return slots.Run(ctx, f.Slots, company, func() (mailingstore.Mailing, error) { return f.Store.CancelMailing(ctx, company, id) })
}

func (f fairStore) MoveMailing(ctx context.Context, company, id uuid.UUID, at time.Time) (mailingstore.Mailing, error) {
	return slots.Run(ctx, f.Slots, company, func() (mailingstore.Mailing, error) { return f.Store.MoveMailing(ctx, company, id, at) })
}

func (f fairStore) RetryFailedEntries(ctx context.Context, company, id uuid.UUID) (mailingstore.Mailing, error) {
	return slots.Run(ctx, f.Slots, company, func() (mailingstore.Mailing, error) { return f.Store.RetryFailedEntries(ctx, company, id) })
}

func (f fairStore) ListDeadLetters(ctx context.Context, company uuid.UUID, q deadletter.LetterQuery) (deadletter.LetterPage, error) {
	return slots.Run(ctx, f.Slots, company, func() (deadletter.LetterPage, error) { return f.Store.ListDeadLetters(ctx, company, q) })
}

func (f fairStore) FindDeadLetter(ctx context.Context, company, id uuid.UUID) (deadletter.Letter, error) {
	return slots.Run(ctx, f.Slots, company, func() (deadletter.Letter, error) { return f.Store.FindDeadLetter(ctx, company, id) })
}

func (f fairStore) FindReplay(ctx context.Context, company, id uuid.UUID) (deadletter.Replay, error) {
	return slots.Run(ctx, f.Slots, company, func() (deadletter.Replay, error) { return f.Store.FindReplay(ctx, company, id) })
}

// MailingVerdicts acquires a slot for each line, so that a slow download holds none.
func (f fairStore) MailingVerdicts(ctx context.Context, company, id uuid.UUID) iter.Seq2[mailingstore.RejectedLine, error] {
	return func(yield func(mailingstore.RejectedLine, error) bool) {
		release, err := f.Enter(ctx, company)
		if err != nil {
			yield(mailingstore.RejectedLine{}, err)
			return
		}
		next, stop := iter.Pull2(f.Store.MailingVerdicts(ctx, company, id))
		defer stop()
		for {
			line, failed, more := next()
			release()
			if !more || !yield(line, failed) {
				return
			}
			if release, err = f.Enter(ctx, company); err != nil {
				yield(mailingstore.RejectedLine{}, err)
				return
			}
		}
	}
}
