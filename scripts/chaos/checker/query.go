package checker

import (
	"context"
	"database/sql"
)

// each calls read for each row of the query's result.
func each(ctx context.Context, db *sql.DB, query string, args []any, read func(scan func(...any) error) error) error {
	rows, err := db.QueryContext(ctx, query, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := read(rows.Scan); err != nil {
			return err
		}
	}
	return rows.Err()
}
