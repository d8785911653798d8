package breaker

import (
	"context"

	"github.com/lib/pq"

	"email-gateway/shared/store/internal/pg"
)

// An answer may not say whether it concerns the account, or only the email or its sender. The first one opens the circuit
// breaker, and its keys (the sender's address and domain, the email's id) are recorded in provider_refusals. If the breaker is
// closed by an accepted email with other keys, the account most likely works: as long as refusals with these keys follow
// within an hour of each other, they do not open the breaker again. An accepted email deletes its keys.
//
// Rows are inserted and disproved under the lock of the breaker's row. An accepted email and a known refusal write only rows that
// no other transaction has locked, so that no email waits for another one.
const (
	// recentSQL has an upper bound because the clock of the server that wrote the time may have been ahead.
	recentSQL = `refused_at BETWEEN now() - interval '1 h' AND now() + interval '1 h'`

	// disprovedSQL finds the rows by provider_refusals_pkey.
	disprovedSQL = `FROM provider_refusals WHERE key = ANY ($1::text[]) AND disproved AND ` + recentSQL

	// knownSQL reads the disproved refusals, and extends them, each at most every 5 minutes.
	knownSQL = `known AS MATERIALIZED (
    SELECT key ` + disprovedSQL + `
), extended AS (
    UPDATE provider_refusals SET refused_at = now()
    WHERE key = ANY (ARRAY(SELECT key FROM provider_refusals
                           WHERE key = ANY (ARRAY(SELECT key FROM known)) AND refused_at < now() - interval '5 min'
                           FOR UPDATE SKIP LOCKED))
)`

	// noteSQL records the keys of an opening, and removes rows that are no longer read: a few rows of the whole table.
	noteSQL = `noted AS (
    INSERT INTO provider_refusals (key) SELECT DISTINCT unnest($1::text[]) FROM opened
    ON CONFLICT (key) DO UPDATE SET refused_at = now(), disproved = false
), expired AS (
    DELETE FROM provider_refusals WHERE EXISTS (SELECT FROM opened) AND NOT ` + recentSQL + ` AND (key = ANY ($1::text[])) IS NOT TRUE
)`

	// disproveSQL disproves all refusals but those of the accepted email.
	disproveSQL = `accepted AS (
    DELETE FROM provider_refusals WHERE $3 AND EXISTS (SELECT FROM closed) AND key = ANY ($4::text[])
), disproved AS (
    UPDATE provider_refusals SET disproved = true
    WHERE $3 AND EXISTS (SELECT FROM closed) AND NOT disproved AND (key = ANY ($4::text[])) IS NOT TRUE
)`

	// refusedKeysSQL reads the whole table, a few rows, and locks nothing.
	refusedKeysSQL = `SELECT key FROM provider_refusals WHERE ` + recentSQL

	refusalDisprovedSQL = `SELECT EXISTS (SELECT ` + disprovedSQL + `)`

	// forgetSQL finds the rows by provider_refusals_pkey.
	forgetSQL = `
DELETE FROM provider_refusals
WHERE key = ANY (ARRAY(SELECT key FROM provider_refusals WHERE key = ANY ($1::text[]) FOR UPDATE SKIP LOCKED))`
)

// RefusedKeys returns the recorded keys, in unspecified order.
func (s *Store) RefusedKeys(ctx context.Context) (keys []string, err error) {
	err = s.db.SelectContext(ctx, &keys, refusedKeysSQL)
	return keys, pg.Wrap("read refused keys", err)
}

// RefusalDisproved reports whether the provider has refused one of these keys, and has since accepted an email with others, so
// that a refusal does not concern the account.
func (s *Store) RefusalDisproved(ctx context.Context, keys []string) (yes bool, err error) {
	err = s.db.GetContext(ctx, &yes, refusalDisprovedSQL, pq.Array(keys))
	return yes, pg.Wrap("read disproved refusals", err)
}

// ForgetRefusals records that the provider has accepted an email with these keys: if it refuses them again, the account may be
// the cause. Keys that another transaction has locked stay.
func (s *Store) ForgetRefusals(ctx context.Context, keys []string) error {
	_, err := s.db.Exec(ctx, forgetSQL, pq.Array(keys))
	return pg.Wrap("forget refusals", err)
}
