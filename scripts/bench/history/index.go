package history

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
)

// indexesSQL lists the definitions of a table's indexes without a constraint. Those of a
// partitioned table contain ONLY, which would exclude its partitions.
const indexesSQL = `
SELECT i.indexrelid::regclass::text, replace(pg_get_indexdef(i.indexrelid), ' ON ONLY ', ' ON ') FROM pg_index i
WHERE i.indrelid = $1::regclass AND NOT EXISTS (SELECT FROM pg_constraint c WHERE c.conindid = i.indexrelid)
ORDER BY 1`

// dropIndexes drops them: inserting ten million rows one by one into an index with another order
// takes ten times as long as sorting them.
func (t table) dropIndexes(ctx context.Context, conn *sql.Conn) (rebuild func(context.Context) error, err error) {
	rows, err := conn.QueryContext(ctx, indexesSQL, t.name)
	if err != nil {
		return nil, fmt.Errorf("list the indexes of %s: %w", t.name, err)
	}
	defer rows.Close()
	var names, definitions []string
	for rows.Next() {
		var name, definition string
		if err := rows.Scan(&name, &definition); err != nil {
			return nil, fmt.Errorf("list the indexes of %s: %w", t.name, err)
		}
		names, definitions = append(names, name), append(definitions, definition)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("list the indexes of %s: %w", t.name, err)
	}
	if len(names) > 0 {
		if _, err := conn.ExecContext(ctx, "DROP INDEX "+strings.Join(names, ", ")); err != nil {
			return nil, fmt.Errorf("drop the indexes of %s: %w", t.name, err)
		}
	}
	return func(ctx context.Context) error {
		for _, definition := range definitions {
			if _, err := conn.ExecContext(ctx, definition); err != nil {
				return fmt.Errorf("build an index of %s: %w", t.name, err)
			}
		}
		return nil
	}, nil
}
