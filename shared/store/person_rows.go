package store

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"

	"github.com/google/uuid"
	"github.com/jmoiron/sqlx"
	"github.com/lib/pq"
)

// PersonTable is a table that rows about people stand in.
type PersonTable string

// They are searched, and erased, in this order: recipients come last, because they say
// what the others are known by.
const (
	PersonEntries     PersonTable = "mailingEntries"
	PersonEmails      PersonTable = "emails" // of the outbox, with news of recipients that wait there
	PersonLogs        PersonTable = "emailLogs"
	PersonDeadLetters PersonTable = "deadLetters"
	PersonRecipients  PersonTable = "recipients"
)

// PersonRow is a row that names the person.
type PersonRow struct {
	ID uuid.UUID
	// Copy: it is about an email to somebody else, with the person in cc, bcc or replyTo.
	Copy bool
	Row  json.RawMessage // all of its columns; nil unless asked for
}

// PersonPage is what one look at a table has found.
type PersonPage struct {
	Rows []PersonRow
	Last uuid.UUID // to look on behind
	More bool
}

// A payload is that of an email, or that of a recipient's news.
const (
	payloadNamesSQL = `(lower(coalesce(s.payload ->> 'to', s.payload ->> 'email')) = ANY ($4::text[])
        OR coalesce(s.payload #>> '{recipient,cpfCnpjHash}', s.payload ->> 'cpfCnpjHash') = ANY ($5::text[])
        OR lower(coalesce(s.payload #>> '{recipient,recipientId}', s.payload ->> 'id')) = ANY ($6::text[])
        OR coalesce(s.payload #>> '{recipient,externalId}', s.payload ->> 'externalId') = ANY ($7::text[])) IS TRUE`
	payloadCopiesSQL = `(lower(s.payload ->> 'replyTo') = ANY ($4::text[]) OR EXISTS (
        SELECT FROM jsonb_array_elements_text(coalesce(s.payload -> 'cc', '[]') || coalesce(s.payload -> 'bcc', '[]')) c WHERE lower(c) = ANY ($4::text[]))) IS TRUE`
	// letterOfSQL is true of a dead letter d of the company.
	letterOfSQL = `coalesce(d.company_id::text, lower(d.payload ->> 'companyId')) = $1::uuid::text`
	// personPageSQL tells how far the look went even when it found nothing.
	personPageSQL = `
FROM (SELECT count(*) AS seen, (SELECT id FROM seen ORDER BY id DESC LIMIT 1) AS last FROM seen) t
LEFT JOIN (SELECT * FROM named WHERE own OR copied) n ON true`
)

// Each looks at the next rows of a table in the order of their ids and locks nothing.
const (
	// It goes along email_outbox_company, and to what it found by primary key.
	personEmailsSQL = `
WITH seen AS MATERIALIZED (
    SELECT id, payload FROM email_outbox WHERE company_id = $1 AND id > $2 ORDER BY id LIMIT $3
), named AS (
    SELECT s.id, ` + payloadNamesSQL + ` AS own, ` + payloadCopiesSQL + ` AS copied FROM seen s
)
SELECT t.seen, t.last, n.id, NOT n.own AS copied, CASE WHEN $8 THEN (SELECT to_jsonb(o) FROM email_outbox o WHERE o.id = n.id) END AS row` + personPageSQL

	// It goes along email_logs_company. The timeline is found by email_events_pkey: of an
	// email to somebody else that has left the outbox, it alone tells who got a copy.
	personLogsSQL = `
WITH seen AS MATERIALIZED (
    SELECT outbox_id AS id, recipient, recipient_id, external_id FROM email_logs WHERE company_id = $1 AND outbox_id > $2 ORDER BY outbox_id LIMIT $3
), named AS (
    SELECT s.id, (lower(s.recipient) = ANY ($4::text[]) OR s.recipient_id = ANY ($6::uuid[]) OR s.external_id = ANY ($7::text[])) IS TRUE AS own,
           EXISTS (SELECT FROM email_events e WHERE e.email_log_id = s.id AND e.metadata::text ~* ANY ($9::text[])) AS copied, $5::text[] AS hashes
    FROM seen s
)
SELECT t.seen, t.last, n.id, NOT n.own AS copied, CASE WHEN $8 THEN (
    SELECT to_jsonb(l) || jsonb_build_object('events', (SELECT jsonb_agg(to_jsonb(e) ORDER BY e.seq) FROM email_events e WHERE e.email_log_id = l.outbox_id))
    FROM email_logs l WHERE l.outbox_id = n.id) END AS row` + personPageSQL

	// It goes along dead_letters_pkey: they are few, and kept for days. That of a task
	// whose email is not there tells its company in the payload alone.
	personDeadLettersSQL = `
WITH seen AS MATERIALIZED (
    SELECT id, email, payload, (` + letterOfSQL + `) IS TRUE AS ours FROM dead_letters d WHERE id > $2 ORDER BY id LIMIT $3
), named AS (
    SELECT s.id, s.ours AND (lower(s.email) = ANY ($4::text[]) OR ` + payloadNamesSQL + `) IS TRUE AS own, s.ours AND ` + payloadCopiesSQL + ` AS copied FROM seen s
)
SELECT t.seen, t.last, n.id, NOT n.own AS copied, CASE WHEN $8 THEN (SELECT to_jsonb(d) FROM dead_letters d WHERE d.id = n.id) END AS row` + personPageSQL

	// It goes along recipients_pkey, and leaves out what an erasure has left.
	personRecipientsSQL = `
WITH seen AS MATERIALIZED (
    SELECT id, company_id, email, cpf_cnpj_hash, external_id FROM recipients WHERE id > $2 ORDER BY id LIMIT $3
), named AS (
    SELECT s.id, s.company_id = $1 AND (lower(s.email) = ANY ($4::text[]) OR s.cpf_cnpj_hash = ANY ($5::text[])
               OR s.id = ANY ($6::uuid[]) OR s.external_id = ANY ($7::text[])) IS TRUE AS own, false AS copied
    FROM seen s WHERE s.email <> '` + ErasedAddress + `'
)
SELECT t.seen, t.last, n.id, false AS copied, CASE WHEN $8 THEN (SELECT to_jsonb(r) FROM recipients r WHERE r.id = n.id) END AS row` + personPageSQL

	// It goes through the range of mailing_entries_pkey that holds the mailing's entries.
	personEntriesSQL = `
WITH seen AS MATERIALIZED (
    SELECT id, email, cpf_cnpj_hash, recipient_id, recipient_external_id FROM mailing_entries
    WHERE id >= $9 AND id > $2 AND id <= $10 AND (mailing_id = $1) IS TRUE ORDER BY id LIMIT $3
), named AS (
    SELECT s.id, (lower(s.email) = ANY ($4::text[]) OR s.cpf_cnpj_hash = ANY ($5::text[])
               OR s.recipient_id = ANY ($6::uuid[]) OR s.recipient_external_id = ANY ($7::text[])) IS TRUE AS own, false AS copied
    FROM seen s
)
SELECT t.seen, t.last, n.id, false AS copied, CASE WHEN $8 THEN (SELECT to_jsonb(e) FROM mailing_entries e WHERE e.id = n.id) END AS row` + personPageSQL
)

// PersonRows looks at the next rows of a table, behind after, for those that name the
// person; whole = with all that stands in them.
func (s *Store) PersonRows(ctx context.Context, p Person, table PersonTable, after uuid.UUID, whole bool) (PersonPage, error) {
	statement := map[PersonTable]string{
		PersonEmails: personEmailsSQL, PersonLogs: personLogsSQL, PersonDeadLetters: personDeadLettersSQL, PersonRecipients: personRecipientsSQL,
	}[table]
	if table == PersonLogs {
		return s.personPage(ctx, statement, p.CompanyID, p, after, whole, p.patterns())
	}
	return s.personPage(ctx, statement, p.CompanyID, p, after, whole)
}

// PersonEntriesOf is PersonRows for the entries of one mailing.
func (s *Store) PersonEntriesOf(ctx context.Context, p Person, m PersonMailing, after uuid.UUID, whole bool) (PersonPage, error) {
	return s.personPage(ctx, personEntriesSQL, m.ID, p, after, whole, m.First, m.Last)
}

func (s *Store) personPage(ctx context.Context, statement string, of uuid.UUID, p Person, after uuid.UUID, whole bool, more ...any) (PersonPage, error) {
	var rows []struct {
		Seen   int           `db:"seen"`
		Last   uuid.NullUUID `db:"last"`
		ID     uuid.NullUUID `db:"id"`
		Copied *bool         `db:"copied"`
		Row    []byte        `db:"row"`
	}
	args := append([]any{
		of, after, personBatch, pq.StringArray(p.Addresses), pq.StringArray(p.Hashes), p.recipientTexts(), pq.StringArray(p.ExternalIDs), whole,
	}, more...)
	err := s.inTx(ctx, func(tx *sqlx.Tx) error {
		if _, err := tx.ExecContext(ctx, alongKeySQL); err != nil {
			return translate(err)
		}
		return translate(tx.SelectContext(ctx, &rows, statement, args...))
	})
	if err != nil {
		return PersonPage{}, fmt.Errorf("look for a person: %w", err)
	}
	page := PersonPage{Last: rows[0].Last.UUID, More: rows[0].Seen == personBatch}
	for _, r := range rows {
		if r.ID.Valid {
			page.Rows = append(page.Rows, PersonRow{ID: r.ID.UUID, Copy: r.Copied != nil && *r.Copied, Row: r.Row})
		}
	}
	return page, nil
}

// patterns match a text in which one of his addresses stands, and not merely ends or
// begins another one. A line's end is written \n in JSON.
func (p *Person) patterns() pq.StringArray {
	patterns := make(pq.StringArray, len(p.Addresses))
	for i, address := range p.Addresses {
		patterns[i] = `(^|\\[nrt]|[^a-z0-9._%+-])` + regexp.QuoteMeta(address) + `\.?([^a-z0-9.-]|$)`
	}
	return patterns
}

// recipientTexts are his ids as an array of text, which Postgres reads as one of ids too.
func (p *Person) recipientTexts() pq.StringArray {
	texts := make(pq.StringArray, len(p.Recipients))
	for i, id := range p.Recipients {
		texts[i] = id.String()
	}
	return texts
}

// PersonMailing is a mailing that is looked through.
type PersonMailing struct {
	ID       uuid.UUID     `db:"id"`
	Filename string        `db:"filename"`
	First    uuid.NullUUID `db:"first_entry"`
	Last     uuid.NullUUID `db:"last_entry"`
	HasFile  bool          `db:"has_file"`
}

// personMailingsSQL goes along mailings_company and locks nothing.
const personMailingsSQL = `
SELECT id, filename, first_entry, last_entry, file_deleted_at IS NULL AS has_file FROM mailings WHERE company_id = $1 ORDER BY id`

// PersonMailings lists all mailings of a company.
func (s *Store) PersonMailings(ctx context.Context, company uuid.UUID) ([]PersonMailing, error) {
	var all []PersonMailing
	if err := s.db.SelectContext(ctx, &all, personMailingsSQL, company); err != nil {
		return nil, fmt.Errorf("list mailings: %w", translate(err))
	}
	return all, nil
}

// Both read what is about a few addresses or emails: suppressions along their primary key,
// stored answers along the first column of theirs. They lock nothing.
const (
	personSuppressionsSQL = `
SELECT address, reason, mailing_id, note, created_at FROM suppressions WHERE company_id = $1 AND address = ANY ($2::text[]) ORDER BY address, reason`
	personAnswersSQL = `
SELECT to_jsonb(k) - 'answer' || jsonb_build_object('answer', convert_from(k.answer, 'UTF8')) FROM idempotency_keys k
WHERE k.company_id = $1 AND k.outbox_id = ANY ($2::uuid[]) ORDER BY k.created_at`
)

// PersonSuppressions lists those of the person's addresses that are suppressed.
func (s *Store) PersonSuppressions(ctx context.Context, p Person) ([]Suppression, error) {
	found := []Suppression{}
	if err := s.db.SelectContext(ctx, &found, personSuppressionsSQL, p.CompanyID, pq.StringArray(p.Addresses)); err != nil {
		return nil, fmt.Errorf("list suppressions of a person: %w", translate(err))
	}
	return found, nil
}

// PersonAnswers lists the stored answers to the requests that these emails, or news of
// recipients, came with.
func (s *Store) PersonAnswers(ctx context.Context, p Person, outboxIDs []uuid.UUID) ([]json.RawMessage, error) {
	var found [][]byte
	if err := s.db.SelectContext(ctx, &found, personAnswersSQL, p.CompanyID, uuidArray(outboxIDs)); err != nil {
		return nil, fmt.Errorf("list stored answers: %w", translate(err))
	}
	answers := make([]json.RawMessage, len(found))
	for i := range found {
		answers[i] = found[i]
	}
	return answers, nil
}
