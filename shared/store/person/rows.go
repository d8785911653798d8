package person

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/google/uuid"
	"github.com/jmoiron/sqlx"
	"github.com/lib/pq"

	"email-gateway/shared/store/internal/pg"
	"email-gateway/shared/store/recipient"
)

// Table is a table that contains rows about people.
type Table string

// The tables are searched and erased in this order. Recipients is last, because its rows connect
// the identifiers in the other tables.
const (
	Entries     Table = "mailingEntries"
	Emails      Table = "emails" // of the outbox, including recipient imports
	Logs        Table = "emailLogs"
	DeadLetters Table = "deadLetters"
	Recipients  Table = "recipients"
)

// Row is a row that names the person.
type Row struct {
	ID uuid.UUID
	// Copy: the row is about an email to another person that also names this one.
	Copy bool
	// Addresses are the person's addresses that occur in the row, in lower case.
	Addresses []string
	Row       json.RawMessage // all of its columns; nil unless Scan.Whole is set

	trace   trace
	request string    // the request or mailing that the row came with; "" = unknown
	stated  uuid.UUID // the email, import or entry that stated the address, a UUIDv7; uuid.Nil = unknown
	// merged: the row is a recipient, whose address and number may come from different emails or imports.
	merged bool
}

// traces returns the row's identifiers. Those of a merged recipient are two traces with its ids in common, one with the
// address and one with the number: if several people share the ids, the address and the number may be of different people.
func (r Row) traces() []trace {
	if !r.merged {
		return []trace{r.trace}
	}
	address, number := r.trace, r.trace
	address.hash, number.address = "", ""
	return []trace{address, number}
}

// Page is the result of reading one part of a table.
type Page struct {
	Rows []Row
	Last uuid.UUID // the next part begins after it
	More bool
}

// Scan selects which part of a table to read.
type Scan struct {
	After uuid.UUID
	// Until is the last id of emails, logs and entries; uuid.Max = no limit.
	Until uuid.UUID
	// Whole returns all columns of the rows.
	Whole bool
}

// The payload is that of an email or of a recipient import.
const (
	payloadNamesSQL = `(lower(coalesce(s.payload ->> 'to', s.payload ->> 'email')) = ANY ($4::text[])
        OR coalesce(s.payload #>> '{recipient,cpfCnpjHash}', s.payload ->> 'cpfCnpjHash') = ANY ($5::text[])
        OR lower(coalesce(s.payload #>> '{recipient,recipientId}', s.payload ->> 'id')) = ANY ($6::text[])
        OR coalesce(s.payload #>> '{recipient,externalId}', s.payload ->> 'externalId') = ANY ($7::text[])) IS TRUE`
	payloadCopiesSQL = `(lower(s.payload ->> 'replyTo') = ANY ($4::text[]) OR EXISTS (
        SELECT FROM jsonb_array_elements_text(coalesce(s.payload -> 'cc', '[]') || coalesce(s.payload -> 'bcc', '[]')) c WHERE lower(c) = ANY ($4::text[]))) IS TRUE`
	// payloadKnownSQL are the columns of a trace.
	payloadKnownSQL = `coalesce(s.payload ->> 'to', s.payload ->> 'email') AS address,
           coalesce(s.payload #>> '{recipient,cpfCnpjHash}', s.payload ->> 'cpfCnpjHash') AS hash,
           coalesce(s.payload #>> '{recipient,recipientId}', s.payload ->> 'id') AS recipient_id,
           coalesce(s.payload #>> '{recipient,externalId}', s.payload ->> 'externalId') AS external_id`
	// payloadToldSQL are the other parts of an email's payload that may contain addresses.
	payloadToldSQL = `s.payload ->> 'replyTo', s.payload -> 'cc', s.payload -> 'bcc', s.payload -> 'headers', s.payload -> 'tags'`
	// senderAddressSQL is the address in the From header of the outbox row s.
	senderAddressSQL = `lower(coalesce(substring(s.sender FROM '<([^<>]+)>\s*$'), s.sender))`
	// letterOfSQL is true for a dead letter d of the company.
	letterOfSQL = `coalesce(d.company_id::text, lower(d.payload ->> 'companyId')) = $1::uuid::text`

	// personArgsSQL gives every parameter a type, even if the statement does not use it.
	personArgsSQL = `
WITH args AS (
    SELECT $1::uuid, $4::text[], $5::text[], $6::text[], $7::text[], $9::text[], $10::uuid
), `
	// personPageSQL returns how far the scan went even if it found nothing. told is the text of the
	// row, other than its address, in which personKnownSQL searches the person's addresses.
	personPageSQL = `
FROM (SELECT count(*) AS seen, (SELECT id FROM seen ORDER BY id DESC LIMIT 1) AS last FROM seen) t
LEFT JOIN (SELECT * FROM named WHERE own OR copied) n ON true`
	personKnownSQL = `SELECT t.seen, t.last, n.id, NOT n.own AS copied, n.address, n.hash, n.recipient_id, n.external_id, n.request_id, n.stated, n.merged,
       ARRAY(SELECT u.address FROM unnest($4::text[], $9::text[]) AS u (address, pattern) WHERE n.told ~* u.pattern) AS copies`
)

// These statements read the next rows of a table in the order of their ids and lock nothing.
const (
	// It scans email_outbox_emails and email_outbox_jobs, merges the results by id, and reads the rows that it found by primary key.
	personEmailsSQL = personArgsSQL + `seen AS MATERIALIZED (
    (SELECT id, payload, sender, last_error, request_id FROM email_outbox
     WHERE company_id = $1 AND id > $2 AND id <= $10 AND target = 'email:send' ORDER BY id LIMIT $3)
    UNION ALL
    (SELECT id, payload, sender, last_error, request_id FROM email_outbox
     WHERE company_id = $1 AND id > $2 AND id <= $10 AND target <> 'email:send' ORDER BY id LIMIT $3)
    ORDER BY id LIMIT $3
), named AS (
    SELECT s.id, ` + payloadNamesSQL + ` AS own, ` + payloadCopiesSQL + ` OR (` + senderAddressSQL + ` = ANY ($4::text[])) IS TRUE
               OR concat_ws(' ', s.payload -> 'headers', s.payload -> 'tags', s.last_error) ~* ANY ($9::text[]) AS copied,
           ` + payloadKnownSQL + `, concat_ws(' ', ` + payloadToldSQL + `, s.sender, s.last_error) AS told, s.request_id, s.id AS stated, false AS merged
    FROM seen s
)
` + personKnownSQL + `, CASE WHEN $8 THEN (SELECT to_jsonb(o) FROM email_outbox o WHERE o.id = n.id) END AS row` + personPageSQL

	// It scans email_logs_company and finds the timelines by email_events_pkey: for an email to another
	// person whose outbox row is purged, only the timeline names the recipients of copies. A log has no
	// hash; the hash in its outbox row, found by primary key, identifies the person if several people
	// had the same external id.
	personLogsSQL = personArgsSQL + `seen AS MATERIALIZED (
    SELECT outbox_id AS id, recipient, recipient_id, external_id, error_reason, tags, request_id FROM email_logs
    WHERE company_id = $1 AND outbox_id > $2 AND outbox_id <= $10 ORDER BY outbox_id LIMIT $3
), named AS (
    SELECT s.id, (lower(s.recipient) = ANY ($4::text[]) OR s.recipient_id = ANY ($6::uuid[]) OR s.external_id = ANY ($7::text[])) IS TRUE AS own,
           cardinality($9::text[]) > 0 AND (concat_ws(' ', s.error_reason, s.tags) ~* ANY ($9::text[])
               OR EXISTS (SELECT FROM email_events e WHERE e.email_log_id = s.id AND e.metadata::text ~* ANY ($9::text[]))) AS copied,
           s.recipient AS address, s.recipient_id::text AS recipient_id, s.external_id, s.error_reason, s.tags, s.request_id, s.id AS stated, false AS merged
    FROM seen s
), told AS (
    SELECT n.*, concat_ws(' ', n.error_reason, n.tags, (SELECT string_agg(e.metadata::text, ' ') FROM email_events e WHERE e.email_log_id = n.id)) AS told
    FROM named n WHERE cardinality($9::text[]) > 0 AND (own OR copied)
    UNION ALL SELECT n.*, '' FROM named n WHERE cardinality($9::text[]) = 0 AND own
), said AS (
    SELECT n.*, (SELECT o.payload #>> '{recipient,cpfCnpjHash}' FROM email_outbox o WHERE o.id = n.id AND o.company_id = $1) AS hash FROM told n
)
` + personKnownSQL + `, CASE WHEN $8 THEN (
    SELECT to_jsonb(l) || jsonb_build_object('events', (SELECT jsonb_agg(to_jsonb(e) ORDER BY e.seq) FROM email_events e WHERE e.email_log_id = l.outbox_id))
    FROM email_logs l WHERE l.outbox_id = n.id) END AS row
FROM (SELECT count(*) AS seen, (SELECT id FROM seen ORDER BY id DESC LIMIT 1) AS last FROM seen) t
LEFT JOIN said n ON true`

	// It scans dead_letters_person twice, merges the results by id, and reads the rows that it found by primary key. A
	// dead letter of a task without an email has its company only in the payload: the second part, of all companies,
	// has few rows.
	personDeadLettersSQL = personArgsSQL + `seen AS MATERIALIZED (
    (SELECT id, email, payload, last_error, resolution_note, true AS ours FROM dead_letters WHERE company_id = $1 AND id > $2 ORDER BY id LIMIT $3)
    UNION ALL
    (SELECT id, email, payload, last_error, resolution_note, (` + letterOfSQL + `) IS TRUE AS ours FROM dead_letters d
     WHERE company_id IS NULL AND id > $2 ORDER BY id LIMIT $3)
    ORDER BY id LIMIT $3
), named AS (
    SELECT s.id, s.ours AND (lower(s.email) = ANY ($4::text[]) OR ` + payloadNamesSQL + `) IS TRUE AS own,
           s.ours AND (` + payloadCopiesSQL + ` OR concat_ws(' ', s.payload -> 'headers', s.payload -> 'tags', s.last_error, s.resolution_note) ~* ANY ($9::text[])) AS copied,
           ` + payloadKnownSQL + `, concat_ws(' ', ` + payloadToldSQL + `, s.email, s.last_error, s.resolution_note) AS told, '' AS request_id, NULL::uuid AS stated, false AS merged
    FROM seen s
)
` + personKnownSQL + `, CASE WHEN $8 THEN (SELECT to_jsonb(d) FROM dead_letters d WHERE d.id = n.id) END AS row` + personPageSQL

	// It scans recipients_company, and skips rows that an erasure has emptied.
	personRecipientsSQL = personArgsSQL + `seen AS MATERIALIZED (
    SELECT id, email, cpf_cnpj_hash, external_id, deleted_at, intake_id, (cpf_cnpj_by = intake_id AND merged_by = intake_id) IS NOT TRUE AS merged
    FROM recipients WHERE company_id = $1 AND id > $2 ORDER BY id LIMIT $3
), named AS (
    SELECT s.id, (lower(s.email) = ANY ($4::text[]) OR s.cpf_cnpj_hash = ANY ($5::text[])
               OR s.id = ANY ($6::uuid[]) OR s.external_id = ANY ($7::text[])) IS TRUE AS own, false AS copied,
           s.email AS address, s.cpf_cnpj_hash AS hash, s.id::text AS recipient_id, s.external_id, '' AS told, '' AS request_id, s.intake_id AS stated, s.merged
    FROM seen s WHERE s.deleted_at IS NULL OR s.email <> '` + recipient.ErasedAddress + `'
)
` + personKnownSQL + `, CASE WHEN $8 THEN (SELECT to_jsonb(r) FROM recipients r WHERE r.id = n.id) END AS row` + personPageSQL

	// It scans the range of mailing_entries_pkey that contains the mailing's entries. If an address failed
	// the syntax check of the upload, the row stores the whole cell, which may contain other text or another person's
	// address. Such a cell is compared only with the patterns of the search; its other addresses are not followed. An entry that
	// the expander found invalid has a last_attempt, and an address.
	personEntriesSQL = personArgsSQL + `seen AS MATERIALIZED (
    SELECT id, mailing_id, invalid_reason, last_attempt, email, cpf_cnpj_hash, recipient_id, recipient_external_id FROM mailing_entries
    WHERE id >= $11 AND id > $2 AND id <= $12 AND id <= $10 AND (mailing_id = $1) IS TRUE ORDER BY id LIMIT $3
), named AS (
    SELECT s.id, (lower(s.email) = ANY ($4::text[]) OR s.cpf_cnpj_hash = ANY ($5::text[])
               OR s.recipient_id = ANY ($6::uuid[]) OR s.recipient_external_id = ANY ($7::text[]) OR c.cell ~* ANY ($9::text[])) IS TRUE AS own, false AS copied,
           CASE WHEN (c.cell ~* ANY ($9::text[])) IS NOT TRUE THEN s.email END AS address,
           s.cpf_cnpj_hash AS hash, s.recipient_id::text AS recipient_id, s.recipient_external_id AS external_id, coalesce(c.cell, '') AS told,
           s.mailing_id::text AS request_id, s.id AS stated, false AS merged
    FROM seen s, LATERAL (SELECT CASE WHEN s.invalid_reason = 'syntax' AND s.last_attempt IS NULL THEN s.email END AS cell) c
)
` + personKnownSQL + `, CASE WHEN $8 THEN (SELECT to_jsonb(e) FROM mailing_entries e WHERE e.id = n.id) END AS row` + personPageSQL
)

// Rows reads the next rows of a table and returns those that name the person.
func (s *Store) Rows(ctx context.Context, p Person, table Table, scan Scan) (Page, error) {
	statement := map[Table]string{
		Emails: personEmailsSQL, Logs: personLogsSQL, DeadLetters: personDeadLettersSQL, Recipients: personRecipientsSQL,
	}[table]
	return s.personPage(ctx, statement, p.CompanyID, p, p.patterns(), scan)
}

// EntriesOf is Rows for the entries of one mailing.
func (s *Store) EntriesOf(ctx context.Context, p Person, m Mailing, scan Scan) (Page, error) {
	return s.personPage(ctx, personEntriesSQL, m.ID, p, p.patterns(), scan, m.First, m.Last)
}

func (s *Store) personPage(ctx context.Context, statement string, of uuid.UUID, p Person, patterns pq.StringArray, scan Scan, more ...any) (Page, error) {
	var rows []struct {
		Seen   int            `db:"seen"`
		Last   uuid.NullUUID  `db:"last"`
		ID     uuid.NullUUID  `db:"id"`
		Copied *bool          `db:"copied"`
		Copies pq.StringArray `db:"copies"`
		Row    []byte         `db:"row"`

		Address     *string `db:"address"`
		Hash        *string `db:"hash"`
		RecipientID *string `db:"recipient_id"`
		ExternalID  *string `db:"external_id"`
		RequestID   *string `db:"request_id"`
		Merged      *bool   `db:"merged"`

		Stated uuid.NullUUID `db:"stated"`
	}
	args := append([]any{
		of, scan.After, personBatch, pq.StringArray(p.Addresses), pq.StringArray(p.Hashes), p.recipientTexts(), pq.StringArray(p.ExternalIDs), scan.Whole,
		patterns, scan.Until,
	}, more...)
	err := s.db.InTx(ctx, func(tx *sqlx.Tx) error {
		if _, err := tx.ExecContext(ctx, pg.AlongKeySQL); err != nil {
			return pg.Translate(err)
		}
		return pg.Translate(tx.SelectContext(ctx, &rows, statement, args...))
	})
	if err != nil {
		return Page{}, fmt.Errorf("look for a person: %w", err)
	}
	page := Page{Last: rows[0].Last.UUID, More: rows[0].Seen == personBatch}
	for _, r := range rows {
		if !r.ID.Valid {
			continue
		}
		row := Row{ID: r.ID.UUID, Copy: r.Copied != nil && *r.Copied, Row: r.Row, Addresses: r.Copies, request: text(r.RequestID), stated: r.Stated.UUID, merged: r.Merged != nil && *r.Merged}
		if !row.Copy {
			row.trace = trace{address: text(r.Address), hash: text(r.Hash), externalID: text(r.ExternalID)}
			row.trace.recipient, _ = uuid.Parse(text(r.RecipientID)) // uuid.Nil if it is not a UUID
			own := strings.ToLower(row.trace.address)
			row.Addresses = slices.DeleteFunc(append([]string{own}, r.Copies...), func(a string) bool { return a == "" || a == recipient.ErasedAddress })
			slices.Sort(row.Addresses)
			row.Addresses = slices.Compact(row.Addresses)
		}
		page.Rows = append(page.Rows, row)
	}
	return page, nil
}

// patterns returns a regular expression for each of the person's addresses, in their order. It matches
// a text that contains the address, but not as a part of a longer one. In JSON a line break is \n.
func (p *Person) patterns() pq.StringArray {
	patterns := make(pq.StringArray, len(p.Addresses))
	for i, address := range p.Addresses {
		patterns[i] = `(^|\\[nrt]|[^[:alnum:]._%+-])` + regexp.QuoteMeta(address) + `\.*([^a-z0-9.-]|$)`
	}
	return patterns
}

// pattern returns a regular expression for regexp_replace that matches each of the addresses.
// Without an address it matches nothing.
func (p *Person) pattern() string {
	quoted := make([]string, len(p.Addresses))
	for i, address := range p.Addresses {
		quoted[i] = regexp.QuoteMeta(address)
	}
	if len(quoted) == 0 {
		return `(?!)`
	}
	return `(?<![[:alnum:]._%+-])(?:` + strings.Join(quoted, "|") + `)(?![a-z0-9-]|\.[a-z0-9])`
}

// recipientTexts returns the ids as an array of texts, which Postgres also accepts as an array of UUIDs.
func (p *Person) recipientTexts() pq.StringArray {
	texts := make(pq.StringArray, len(p.Recipients))
	for i, id := range p.Recipients {
		texts[i] = id.String()
	}
	return texts
}

func text(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}
