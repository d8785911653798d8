package pg

import (
	"context"
	"time"

	"email-gateway/shared/uuidv7"
)

// clockSQL reads no table.
const clockSQL = `SELECT clock_timestamp()`

// ReadClock makes ids follow Postgres's clock. The wait for a connection is not part of the measured time.
func (db *DB) ReadClock(ctx context.Context, ids *uuidv7.Source) error {
	conn, err := db.Connx(ctx)
	if err == nil {
		defer conn.Close() //nolint:errcheck // nothing was changed
		err = ids.Follow(func() (now time.Time, err error) {
			err = conn.GetContext(ctx, &now, clockSQL)
			return now, err
		})
	}
	return Wrap("read Postgres's clock", Translate(err))
}
