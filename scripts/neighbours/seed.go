package neighbours

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/google/uuid"

	"email-gateway/shared/service"
)

// seedLogs adds n sent emails of the company without outbox rows: copies of the log of a sent
// email.
func (s *scenario) seedLogs(ctx context.Context, n int) error {
	to := "modelo@" + s.domain
	model, err := s.sendModel(ctx, map[string]any{"to": to, "recipient": map[string]any{"externalId": "modelo", "email": to}, "tags": []string{"oferta"}})
	if err != nil {
		return err
	}
	if err := s.await(ctx, time.Minute, `SELECT status = 'SENT' FROM email_logs WHERE outbox_id = $1`, model); err != nil {
		return err
	}
	return s.copyRows(ctx, "email_logs", "outbox_id", model, 1, n, nil)
}

// seedScheduled adds n scheduled emails of the company, of which the last due become due at the
// same time, soon after it returns. They are inserted with that time: the measurement is about many
// due emails, not about an update of many rows.
func (s *scenario) seedScheduled(ctx context.Context, n, due int) error {
	model, err := s.sendModel(ctx, map[string]any{"sendAt": tomorrow()})
	if err != nil {
		return err
	}
	if err := s.copyRows(ctx, "email_logs", "outbox_id", model, 1, n, nil); err != nil {
		return err
	}
	change := map[string]string{"payload": `m.payload || jsonb_build_object('outboxId', n.id, 'htmlRef', n.id)`}
	start := time.Now()
	if err := s.copyRows(ctx, "email_outbox", "id", model, 1, n-due, change); err != nil {
		return err
	}
	// Each of the others takes as long, or three times that while the machine is busy.
	at := time.Now().Add(3*time.Since(start)*time.Duration(due)/time.Duration(n-due) + dueAfter)
	change["next_at"] = fmt.Sprintf("timestamptz '%s'", at.Format(time.RFC3339Nano))
	change["expires_at"] = change["next_at"] + " + interval '1 day'"
	if err := s.copyRows(ctx, "email_outbox", "id", model, n-due+1, n, change); err != nil {
		return err
	}
	s.count("rows", n)
	return service.Pause(ctx, time.Until(at.Add(-dueAfter)))
}

// sendModel submits an email that is then copied.
func (s *scenario) sendModel(ctx context.Context, more map[string]any) (uuid.UUID, error) {
	got, err := s.client.do(ctx, s.mail(0, more))
	if err != nil || got.status != http.StatusAccepted {
		return uuid.Nil, fmt.Errorf("send: %d %s: %w", got.status, got.body, err)
	}
	return outboxID(got)
}

// await waits until the query returns true.
func (s *scenario) await(ctx context.Context, limit time.Duration, query string, args ...any) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for {
		var done bool
		// No row counts as false.
		if err := s.cluster.Database.QueryRowContext(ctx, query, args...).Scan(&done); err == nil && done {
			return nil
		}
		if err := service.Pause(ctx, 50*time.Millisecond); err != nil {
			return fmt.Errorf("await %q: %w", query, err)
		}
	}
}

// copyRows inserts the copies first to last of the model's row, 100,000 per commit. Columns that
// are not in change are copied unchanged, so that columns of later migrations are filled too. The
// ids are UUIDv7 of the current time, the same in each table.
func (s *scenario) copyRows(ctx context.Context, table, key string, model uuid.UUID, first, last int, change map[string]string) error {
	columns, err := s.columns(ctx, table)
	if err != nil {
		return err
	}
	values := make([]string, len(columns))
	for i, column := range columns {
		values[i] = `m."` + column + `"`
		if value, changed := change[column]; changed {
			values[i] = value
		}
		if column == key {
			values[i] = "n.id"
		}
	}
	statement := `INSERT INTO ` + table + ` ("` + strings.Join(columns, `", "`) + `") SELECT ` + strings.Join(values, ", ") + `
FROM (SELECT i, (substr($1::text, 1, 13) || '-7' || lpad(to_hex(i / 65536), 3, '0') || '-8000-' || lpad(to_hex(i % 65536), 12, '0'))::uuid AS id
      FROM generate_series($2::bigint, $3::bigint) AS i) n CROSS JOIN ` + table + ` m WHERE m."` + key + `" = $1::text::uuid`
	const most = 100_000
	for from := first; from <= last; from += most {
		if _, err := s.cluster.Database.ExecContext(ctx, statement, model, from, min(from+most-1, last)); err != nil {
			return fmt.Errorf("copy rows of %s: %w", table, err)
		}
	}
	if _, err := s.cluster.Database.ExecContext(ctx, `ANALYZE `+table); err != nil {
		return fmt.Errorf("analyze %s: %w", table, err)
	}
	return nil
}

// columns returns the stored columns of the table.
func (s *scenario) columns(ctx context.Context, table string) (names []string, err error) {
	rows, err := s.cluster.Database.QueryContext(ctx, `
SELECT attname FROM pg_attribute WHERE attrelid = $1::regclass AND attnum > 0 AND NOT attisdropped AND attgenerated = '' ORDER BY attnum`, table)
	if err != nil {
		return nil, fmt.Errorf("list the columns of %s: %w", table, err)
	}
	defer rows.Close()
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			return nil, fmt.Errorf("list the columns of %s: %w", table, err)
		}
		names = append(names, name)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("list the columns of %s: %w", table, err)
	}
	return names, nil
}
