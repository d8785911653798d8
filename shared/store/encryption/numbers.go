package encryption

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/jmoiron/sqlx"

	"email-gateway/shared/store/audit"
	"email-gateway/shared/store/internal/pg"
	"email-gateway/shared/store/retention"
	"email-gateway/shared/store/sql"
)

// EncryptedTable is a table that holds encrypted CPFs and CNPJs.
type EncryptedTable string

// The tables with encrypted numbers.
const (
	EncryptedRecipients EncryptedTable = "recipients"
	EncryptedEmails     EncryptedTable = "emails"         // until a worker moves the number to recipients
	EncryptedEntries    EncryptedTable = "mailingEntries" // until the expander moves it to emails
)

// EncryptedTables lists the tables in the order in which a number moves through them, so that a pass over all of them
// also finds a number that moves during the pass.
func EncryptedTables() []EncryptedTable {
	return []EncryptedTable{EncryptedEntries, EncryptedEmails, EncryptedRecipients}
}

// EncryptedValue is an encrypted number in a row.
type EncryptedValue struct {
	ID        uuid.UUID `db:"id"`
	CompanyID uuid.UUID `db:"company_id"` // the encryption is bound to it
	Encrypted []byte    `db:"cpf_cnpj_enc"`
}

// EncryptedPage holds the encrypted numbers of the next rows of a table.
type EncryptedPage struct {
	Values []EncryptedValue
	Last   uuid.UUID // the next page begins after it
	More   bool      // there are further rows
}

// These statements read the next rows in the order of the primary key and lock nothing. The company of an entry is that of
// its mailing, found by mailings_pkey.
const (
	encryptedRecipientsSQL = `
WITH seen AS MATERIALIZED (SELECT id, company_id, cpf_cnpj_enc FROM recipients WHERE id > $1 ORDER BY id LIMIT $2)` + encryptedPageSQL
	encryptedEmailsSQL = `
WITH seen AS MATERIALIZED (SELECT id, company_id, cpf_cnpj_enc FROM email_outbox WHERE id > $1 ORDER BY id LIMIT $2)` + encryptedPageSQL
	encryptedEntriesSQL = `
WITH seen AS MATERIALIZED (
    SELECT n.id, m.company_id, n.cpf_cnpj_enc
    FROM (SELECT id, mailing_id, cpf_cnpj_enc FROM mailing_entries WHERE id > $1 ORDER BY id LIMIT $2) n
    LEFT JOIN mailings m ON m.id = n.mailing_id AND n.cpf_cnpj_enc IS NOT NULL
)` + encryptedPageSQL
	encryptedPageSQL = `
SELECT t.seen, t.last, s.id, s.company_id, s.cpf_cnpj_enc
FROM (SELECT count(*) AS seen, (SELECT id FROM seen ORDER BY id DESC LIMIT 1) AS last FROM seen) t
LEFT JOIN seen s ON s.cpf_cnpj_enc IS NOT NULL`
)

// encryptedBatch is how many rows one statement reads: about 20 ms.
const encryptedBatch = 5000

// EncryptedValues returns the encrypted numbers in the next rows of a table after the id.
func (s *Store) EncryptedValues(ctx context.Context, table EncryptedTable, after uuid.UUID) (EncryptedPage, error) {
	statement := map[EncryptedTable]string{EncryptedRecipients: encryptedRecipientsSQL, EncryptedEmails: encryptedEmailsSQL, EncryptedEntries: encryptedEntriesSQL}[table]
	var rows []struct {
		Seen      int           `db:"seen"`
		Last      uuid.NullUUID `db:"last"`
		ID        uuid.NullUUID `db:"id"`
		CompanyID uuid.NullUUID `db:"company_id"`
		Encrypted []byte        `db:"cpf_cnpj_enc"`
	}
	err := s.db.InTx(ctx, func(tx *sqlx.Tx) error {
		if _, err := tx.ExecContext(ctx, pg.AlongKeySQL); err != nil {
			return pg.Translate(err)
		}
		return pg.Translate(tx.SelectContext(ctx, &rows, statement, after, encryptedBatch))
	})
	if err != nil {
		return EncryptedPage{}, fmt.Errorf("list encrypted numbers of %s: %w", table, err)
	}
	page := EncryptedPage{Last: rows[0].Last.UUID, More: rows[0].Seen == encryptedBatch}
	for _, r := range rows {
		if r.ID.Valid {
			page.Values = append(page.Values, EncryptedValue{r.ID.UUID, r.CompanyID.UUID, r.Encrypted})
		}
	}
	return page, nil
}

// reencrypted is a value that was encrypted again.
type reencrypted struct {
	EncryptedValue
	now []byte
}

// reencryptParameters are the parameters of the three reencrypt statements.
var reencryptParameters = pg.Parameters[struct{}, reencrypted]{
	Columns: []pg.Column[reencrypted]{
		pg.Each("id", "uuid", pg.UUIDs, func(r *reencrypted) uuid.UUID { return r.ID }),
		pg.Each("was", "bytea", pg.Byteas, func(r *reencrypted) []byte { return r.Encrypted }),
		pg.Each("now", "bytea", pg.Byteas, func(r *reencrypted) []byte { return r.now }),
	},
}

// Reencrypt replaces the encrypted values was with now, and returns the number of replaced values. A row that has changed
// since it was read keeps its value.
func (s *Store) Reencrypt(ctx context.Context, table EncryptedTable, was []EncryptedValue, now [][]byte) (int, error) {
	statement := map[EncryptedTable]string{EncryptedRecipients: sql.ReencryptRecipients, EncryptedEmails: sql.ReencryptEmails, EncryptedEntries: sql.ReencryptEntries}[table]
	values := make([]reencrypted, len(was))
	for i := range values {
		values[i] = reencrypted{was[i], now[i]}
	}
	var n int64
	_, err := pg.Repeat(func() ([]struct{}, error) {
		result, err := s.db.Exec(ctx, statement, reencryptParameters.Arguments(struct{}{}, values)...)
		if err == nil {
			n, err = result.RowsAffected()
		}
		return nil, err
	})
	return int(n), pg.Wrap("encrypt again: "+string(table), err)
}

// keptFilesSQL reads in the order of mailings_pkey and locks nothing.
const keptFilesSQL = `
SELECT id, company_id FROM mailings WHERE id > $1 AND file_deleted_at IS NULL ORDER BY id LIMIT $2`

// KeptFiles lists at most limit mailings after the id whose files are kept.
func (s *Store) KeptFiles(ctx context.Context, after uuid.UUID, limit int) ([]retention.MailingFile, error) {
	var files []retention.MailingFile
	if err := s.db.SelectContext(ctx, &files, keptFilesSQL, after, limit); err != nil {
		return nil, fmt.Errorf("list files: %w", pg.Translate(err))
	}
	return files, nil
}

// fileKeptSQL reads by primary key.
const fileKeptSQL = `SELECT EXISTS (SELECT FROM mailings WHERE id = $1 AND file_deleted_at IS NULL)`

// FileKept reports whether a mailing's file is still needed.
func (s *Store) FileKept(ctx context.Context, mailing uuid.UUID) (kept bool, err error) {
	return kept, pg.Wrap("look for file", pg.Translate(s.db.GetContext(ctx, &kept, fileKeptSQL, mailing)))
}

// RecordRotation writes the audit entry of an operator who has encrypted all data with the newest key.
func (s *Store) RecordRotation(ctx context.Context, by audit.Operator, details map[string]any) error {
	return pg.Wrap("record rotation", audit.Record(ctx, s.db, by, audit.Change{Action: "encryption.rotate", Details: details}))
}
