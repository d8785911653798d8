package schema

import (
	"context"
	"database/sql"
)

// MoveTo applies or reverts migrations until the version is the newest one applied.
func MoveTo(ctx context.Context, db *sql.DB, version int64) error {
	p, err := provider(db)
	if err != nil {
		return err
	}
	if _, err = p.UpTo(ctx, version); err == nil {
		_, err = p.DownTo(ctx, version)
	}
	return err
}
