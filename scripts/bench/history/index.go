package history

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
)

// indexesSQL lists the indexes of a table that hold no constraint, as they are made. A
// partitioned table's says ONLY, which would leave out its partitions.
const indexesSQL = `
SELECT i.indexrelid::regclass::text, replace(pg_get_indexdef(i.indexrelid), ' ON ONLY ', ' ON ') FROM pg_index i
WHERE i.indrelid = $1::regclass AND NOT EXISTS (SELECT FROM pg_constraint c WHERE c.conindid = i.indexrelid)
ORDER BY 1`

// dropIndexes drops them: ten million rows in the order of their ids find their places in
// an index by another order one by one, which takes ten times as long as sorting them.
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
