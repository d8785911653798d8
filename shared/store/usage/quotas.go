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

// quotasSQL reads what email_gateway_use and email_gateway_count_scheduled read, and locks nothing. If the latter does
// not count the scheduled emails, their number may be too high until the dispatcher has counted them.
const quotasSQL = `
SELECT quota, most, coalesce(CASE WHEN quota = 'scheduled_emails' AND used > 0 THEN email_gateway_count_scheduled($1, used) END, used) AS used, resets_at
FROM email_gateway_use($1, true)`

// Quotas returns all quotas of the company.
func (s *Store) Quotas(ctx context.Context, company uuid.UUID) ([]Quota, error) {
	var all []Quota
	if err := s.db.Select(ctx, &all, quotasSQL, company); err != nil {
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
