package reputation

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jmoiron/sqlx"

	"email-gateway/shared/store/internal/pg"
)

// measureSQL sums the company's rows of reputation_sends along its primary key, and counts those of
// reputation_feedback along reputation_feedback_company. Both windows begin at a whole minute, so that
// they cover the same emails. It locks nothing.
const measureSQL = `
SELECT s.hour AS sent_hour, s.day AS sent_day, f.* FROM (
    SELECT coalesce(sum(sent) FILTER (WHERE minute >= date_trunc('minute', now() - interval '1 hour')), 0) AS hour, coalesce(sum(sent), 0) AS day
    FROM reputation_sends WHERE company_id = $1 AND minute >= date_trunc('minute', now() - interval '24 hours')
) s, (
    SELECT count(*) FILTER (WHERE kind = 'complaint' AND sent_at >= date_trunc('minute', now() - interval '1 hour')) AS complaints_hour,
           count(*) FILTER (WHERE kind = 'complaint') AS complaints_day,
           count(*) FILTER (WHERE kind = 'bounce' AND sent_at >= date_trunc('minute', now() - interval '1 hour')) AS bounces_hour,
           count(*) FILTER (WHERE kind = 'bounce') AS bounces_day
    FROM reputation_feedback WHERE company_id = $1 AND sent_at >= date_trunc('minute', now() - interval '24 hours') AND sent_at > $2
) f`

// measure returns the company's Measure for each rule. It does not count feedback about emails that
// were sent at or before from.
func measure(ctx context.Context, on sqlx.QueryerContext, company uuid.UUID, from time.Time) (map[Rule]Measure, error) {
	var m struct {
		SentHour       int `db:"sent_hour"`
		SentDay        int `db:"sent_day"`
		ComplaintsHour int `db:"complaints_hour"`
		ComplaintsDay  int `db:"complaints_day"`
		BouncesHour    int `db:"bounces_hour"`
		BouncesDay     int `db:"bounces_day"`
	}
	if err := sqlx.GetContext(ctx, on, &m, measureSQL, company, from); err != nil {
		return nil, fmt.Errorf("measure: %w", pg.Translate(err))
	}
	return map[Rule]Measure{
		Complaints1h: {m.SentHour, m.ComplaintsHour}, Complaints24h: {m.SentDay, m.ComplaintsDay},
		Bounces1h: {m.SentHour, m.BouncesHour}, Bounces24h: {m.SentDay, m.BouncesDay},
	}, nil
}
