package history

import (
	"context"
	"database/sql"
	"fmt"
	"maps"
	"slices"
)

// table describes how a copy differs from the model's row. Other columns are copied, so that
// columns of later migrations have the values that programs write.
type table struct {
	name, key string            // key is the column that holds the email's id
	columns   map[string]string // SQL in terms of n (the clone) and m (the model's row)
}

// The values of a copy, as SQL in terms of n: its number i, its hash h, the time t of acceptance,
// its id.
const (
	requestID  = `'req-' || substr(n.h, 1, 24)`
	address    = `'pessoa.' || n.person || '@cliente.example'`
	externalID = `'CUST-' || n.person`
	payload    = `m.payload || jsonb_build_object('outboxId', n.id, 'htmlRef', n.id, 'requestId', ` + requestID + `, 'to', ` + address + `,
		'recipient', (m.payload -> 'recipient') - 'recipientId' || jsonb_build_object('externalId', ` + externalID + `, 'email', ` + address + `))`
	ended = `n.t + $8::bigint * interval '1 us'`
)

var outbox = table{name: "email_outbox", key: "id", columns: map[string]string{
	"request_id": requestID, "payload": payload,
	"created_at": "n.t", "next_at": "n.t", "expires_at": "n.t + interval '24 h'",
	"enqueued_at": ended, "processed_at": ended, "claim_token": "md5(n.h)::uuid",
}}

var logs = table{name: "email_logs", key: "outbox_id", columns: map[string]string{
	"request_id": requestID, "recipient": address, "external_id": externalID, "recipient_id": "md5(n.person::text)::uuid",
	"ses_message_id": "'0100' || n.h || '-000000'",
	"created_at":     "n.t", "expires_at": "n.t + interval '24 h'", "sent_at": ended,
}}

var events = table{name: "email_events", key: "email_log_id", columns: map[string]string{
	"created_at": ended,
}}

// statement inserts the copies $2 to $3 (exclusive) of the model $1. $4 is a salt of their hashes;
// $5 is the time of the first one in microseconds since 1970, $6 the step in nanoseconds; $7 is the
// number of people, $8 how long sending took in microseconds.
//
// The id is a UUIDv7: the milliseconds, then digits of the hash. It is the same in every table for
// the same number.
func (t table) statement(ctx context.Context, conn *sql.Conn) (string, error) {
	columns, err := t.all(ctx, conn)
	if err != nil {
		return "", err
	}
	values := ""
	for i, column := range columns {
		value, changed := t.columns[column]
		switch {
		case column == t.key:
			value = "n.id"
		case !changed:
			value = `m."` + column + `"`
		}
		if i > 0 {
			values += ", "
		}
		values += value
	}
	return `
INSERT INTO ` + t.name + ` (` + quote(columns) + `)
SELECT ` + values + `
FROM (
    SELECT i, h, t, person,
           (lpad(to_hex((extract(epoch FROM t) * 1000)::bigint), 12, '0') || '7' || substr(h, 1, 3) || '8' || substr(h, 4, 15))::uuid AS id
    FROM (
        SELECT i, md5($4::text || i) AS h, timestamptz 'epoch' + ($5::bigint + $6::bigint * i / 1000) * interval '1 us' AS t,
               -- a step that has no divisor in common with most numbers, so that neighbours are strangers
               i * 7919 % $7::bigint AS person
        FROM generate_series($2::bigint, $3::bigint - 1) AS i
    ) AS numbered
    WHERE $8::bigint > 0
) AS n
CROSS JOIN ` + t.name + ` AS m
WHERE m."` + t.key + `" = $1::uuid
ORDER BY n.i`, nil
}

// all returns the stored columns.
func (t table) all(ctx context.Context, conn *sql.Conn) ([]string, error) {
	rows, err := conn.QueryContext(ctx, `
SELECT attname FROM pg_attribute
WHERE attrelid = $1::regclass AND attnum > 0 AND NOT attisdropped AND attgenerated = ''
ORDER BY attnum`, t.name)
	if err != nil {
		return nil, fmt.Errorf("list the columns of %s: %w", t.name, err)
	}
	defer rows.Close()
	var columns []string
	for rows.Next() {
		var column string
		if err := rows.Scan(&column); err != nil {
			return nil, fmt.Errorf("list the columns of %s: %w", t.name, err)
		}
		columns = append(columns, column)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("list the columns of %s: %w", t.name, err)
	}
	for column := range maps.Keys(t.columns) {
		if !slices.Contains(columns, column) {
			return nil, fmt.Errorf("fill %s: it no longer has a column %q", t.name, column)
		}
	}
	return columns, nil
}
