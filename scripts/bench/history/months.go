package history

import (
	"context"
	"database/sql"
	"fmt"
	"time"
)

// monthsSQL lists the months since $2 for which the table has no partition, with the fillfactor of
// its partitions; nothing if the table is not partitioned.
const monthsSQL = `
SELECT $1 || to_char(m, '"_"YYYY_MM'), first_id_at(m AT TIME ZONE 'UTC')::text, first_id_at((m + interval '1 month') AT TIME ZONE 'UTC')::text,
       coalesce((SELECT substring(o FROM '^fillfactor=(\d+)$') FROM pg_class c, unnest(c.reloptions) o
                 WHERE c.oid = to_regclass($1 || '_default') AND o LIKE 'fillfactor=%'), '100')
FROM generate_series(date_trunc('month', $2::timestamptz AT TIME ZONE 'UTC'), date_trunc('month', now() AT TIME ZONE 'UTC'), interval '1 month') AS m
WHERE EXISTS (SELECT FROM pg_partitioned_table WHERE partrelid = $1::regclass)
  AND NOT EXISTS (SELECT FROM log_partitions p WHERE p.log = $1 AND p.end_id > first_id_at(m AT TIME ZONE 'UTC')
                  AND coalesce(p.first_id <= first_id_at(m AT TIME ZONE 'UTC'), true))
ORDER BY m`

// makeMonths creates the partitions of past months, which a gateway that ran then would have.
// Otherwise all rows would be in the default partition, which is not intended for millions of rows.
func (t table) makeMonths(ctx context.Context, conn *sql.Conn, since time.Time) error {
	rows, err := conn.QueryContext(ctx, monthsSQL, t.name, since)
	if err != nil {
		return fmt.Errorf("list the months of %s: %w", t.name, err)
	}
	defer rows.Close()
	var statements []string
	for rows.Next() {
		var name, first, end, fillfactor string
		if err := rows.Scan(&name, &first, &end, &fillfactor); err != nil {
			return fmt.Errorf("list the months of %s: %w", t.name, err)
		}
		statements = append(statements, fmt.Sprintf(`CREATE TABLE "%s" PARTITION OF %s FOR VALUES FROM ('%s') TO ('%s') WITH (fillfactor = %s)`,
			name, t.name, first, end, fillfactor))
	}
	if err := rows.Err(); err != nil {
		return fmt.Errorf("list the months of %s: %w", t.name, err)
	}
	for _, statement := range statements {
		if _, err := conn.ExecContext(ctx, statement); err != nil {
			return fmt.Errorf("make a month of %s: %w", t.name, err)
		}
	}
	return nil
}
