package store_test

import (
	"database/sql"
	"errors"
	"testing"

	"github.com/google/uuid"
	"github.com/lib/pq"

	"email-gateway/shared/email"
	"email-gateway/shared/email/emailtest"
	"email-gateway/shared/store/storetest"
)

// The CHECK email_events_path and emailtest.MayFollow are the same state diagram, held
// once by the database and once by the programs: both must give the same result for every pair of types.
func TestEventPairs_DatabaseAndProgramsAgree(t *testing.T) {
	t.Parallel()
	db := storetest.New(t).SQL
	types := append(email.EventTypes(), "UNHEARD_OF")
	for _, previous := range append(types, "") {
		for _, next := range types {
			before, seq := sql.NullString{String: string(previous), Valid: true}, 2
			if previous == "" {
				before, seq = sql.NullString{}, 1
			}
			_, err := db.ExecContext(t.Context(),
				`INSERT INTO email_events (email_log_id, seq, previous, type, created_at) VALUES ($1, $2, $3, $4, now())`,
				uuid.New(), seq, before, next)
			var refused *pq.Error
			if err != nil && (!errors.As(err, &refused) || refused.Constraint != "email_events_path") {
				t.Fatalf("%q → %q: %v", previous, next, err)
			}
			if taken, want := err == nil, emailtest.MayFollow(previous, next); taken != want {
				t.Errorf("%q → %q: the database accepts it: %v, MayFollow: %v", previous, next, taken, want)
			}
		}
	}
}
