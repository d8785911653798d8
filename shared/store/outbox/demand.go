package outbox

import (
	"context"
	"maps"
	"time"

	"github.com/google/uuid"
	"github.com/jmoiron/sqlx"

	"email-gateway/shared/store/quota"
	"email-gateway/shared/store/recipient"
)

// Demand returns what the email adds to the company's usage. It counts a recipient without an id as a new one; demandOf
// corrects that for recipients that are stored already.
func (e *NewEmail) Demand() quota.Demand {
	wanted := quota.Demand{quota.EmailsPerDay: 1, quota.StoredBodyBytes: int64(len(e.HTML) + len(e.Text))}
	if e.SendAt.After(time.Now()) {
		wanted[quota.ScheduledEmails] = 1
	}
	if e.Job.Recipient.RecipientID == "" {
		wanted[quota.Recipients] = 1
	}
	return wanted
}

// recipientID returns the id of the recipient that the worker creates from the email.
func (e *NewEmail) recipientID() uuid.UUID {
	r := e.Job.Recipient
	return recipient.ID(e.CompanyID, r.ExternalID, r.CPFCNPJHash, r.Email)
}

// demandOf returns what each of the emails adds to the company's usage.
func demandOf(ctx context.Context, tx *sqlx.Tx, company uuid.UUID, emails []NewEmail) ([]quota.Demand, error) {
	wanted := make([]quota.Demand, len(emails))
	var recipients []uuid.UUID
	for i := range emails {
		if wanted[i] = emails[i].Demand(); wanted[i][quota.Recipients] > 0 {
			recipients = append(recipients, emails[i].recipientID())
		}
	}
	if len(recipients) == 0 {
		return wanted, nil
	}
	known, err := recipient.FindKnown(ctx, tx, company, recipients)
	if err != nil {
		return nil, err
	}
	for i := range emails {
		if wanted[i][quota.Recipients] > 0 && known[emails[i].recipientID()] {
			delete(wanted[i], quota.Recipients)
		}
	}
	return wanted, nil
}

// budget is what the company may still use. A new recipient uses the quota of recipients once, however many of the emails
// create it, and only if one of them is accepted.
type budget struct {
	left     *quota.Budget
	creating map[uuid.UUID]int // number of accepted emails, by the new recipient that they create
}

// openBudget reads what the emails' company may still use. The caller has locked its quotas.
func openBudget(ctx context.Context, tx *sqlx.Tx, company uuid.UUID, emails []NewEmail, wanted []quota.Demand) (*budget, error) {
	b, err := quota.OpenBudget(ctx, tx, company, totalDemand(emails, wanted), false)
	return &budget{b, map[uuid.UUID]int{}}, err
}

// totalDemand is what the emails add to the usage if all are accepted.
func totalDemand(emails []NewEmail, wanted []quota.Demand) quota.Demand {
	all, b := quota.Demand{}, budget{creating: map[uuid.UUID]int{}}
	for i := range emails {
		for q, n := range b.cost(&emails[i], wanted[i]) {
			all[q] += n
		}
		b.count(&emails[i], wanted[i], 1)
	}
	return all
}

// take adds the email to the usage, or returns the quota that it would exceed and adds nothing.
func (b *budget) take(e *NewEmail, wanted quota.Demand) *quota.Error {
	cost := b.cost(e, wanted)
	if over := b.left.Exceeded(cost); over != nil {
		return over
	}
	b.left.Add(cost, 1)
	b.count(e, wanted, 1)
	return nil
}

// release subtracts an email that was taken.
func (b *budget) release(e *NewEmail, wanted quota.Demand) {
	b.count(e, wanted, -1)
	b.left.Add(b.cost(e, wanted), -1)
}

// cost is what the email adds to the usage beside those that were taken.
func (b *budget) cost(e *NewEmail, wanted quota.Demand) quota.Demand {
	if wanted[quota.Recipients] > 0 && b.creating[e.recipientID()] > 0 {
		wanted = maps.Clone(wanted)
		delete(wanted, quota.Recipients)
	}
	return wanted
}

func (b *budget) count(e *NewEmail, wanted quota.Demand, n int) {
	if wanted[quota.Recipients] > 0 {
		b.creating[e.recipientID()] += n
	}
}
