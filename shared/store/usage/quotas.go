package usage

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
)

// Quota is a limit of a company with its current usage.
type Quota struct {
	Name  string `db:"quota" json:"quota"`
	Limit int64  `db:"most" json:"limit"` // 0 = unlimited
	Use   int64  `db:"used" json:"use"`
	// Reset is when the usage becomes 0; nil = it decreases as data is deleted or mailings end.
	Reset *time.Time `db:"resets_at" json:"reset,omitempty"`
}

// mostScheduled limits the scheduled emails that a request counts one by one: 100,000 take about 50 ms.
const mostScheduled = 100_000

// quotasSQL reads what email_gateway_use and email_gateway_scheduled read, and locks nothing. The number of
// scheduled emails that email_gateway_use returns may be too high until they are counted again.
const quotasSQL = `
SELECT quota, most, CASE WHEN quota = 'scheduled_emails' AND used BETWEEN 1 AND $2 THEN email_gateway_scheduled($1) ELSE used END AS used, resets_at
FROM email_gateway_use($1, true)`

// Quotas returns all quotas of the company.
func (s *Store) Quotas(ctx context.Context, company uuid.UUID) ([]Quota, error) {
	var all []Quota
	if err := s.db.Select(ctx, &all, quotasSQL, company, mostScheduled); err != nil {
		return nil, fmt.Errorf("read quotas: %w", err)
	}
	for i := range all {
		if all[i].Reset != nil {
			at := all[i].Reset.UTC()
			all[i].Reset = &at
		}
	}
	return all, nil
}
