package mailing

import (
	"fmt"
	"time"

	"github.com/google/uuid"

	"email-gateway/shared/store/internal/pg"
	"email-gateway/shared/store/internal/pgcopy"
	"email-gateway/shared/store/internal/pgtext"
	"email-gateway/shared/store/sql"
)

// copyEntriesSQL inserts into both indexes of mailing_entries. It locks no existing row, and other
// transactions do not see the new rows before the commit.
const copyEntriesSQL = `
COPY mailing_entries (id, mailing_id, line_no, email, token, status, invalid_reason, fields,
                      nome, razao_social, recipient_external_id, cpf_cnpj_hash, cpf_cnpj_enc, empty_fields) FROM STDIN`

func (w *entryWriter) copyEntry(e *NewEntry) error {
	if w.copying == nil {
		var err error
		if w.copying, err = pgcopy.Begin(w.ctx, w.tx.Conn, copyEntriesSQL); err != nil {
			return fmt.Errorf("copy entries: %w", pg.Translate(err))
		}
		w.startedAt = time.Now()
	}
	row := w.copying
	row.UUID(e.ID)
	row.UUID(w.mailing)
	row.BigInt(int64(e.Line))
	row.Text(e.Email)
	row.Text(e.Token)
	row.Text(e.status())
	row.OptionalText(e.InvalidReason)
	row.Texts(e.Fields)
	row.OptionalText(e.Nome)
	row.OptionalText(e.RazaoSocial)
	row.OptionalText(e.ExternalID)
	row.OptionalText(e.CPFCNPJHash)
	row.OptionalBytea(e.CPFCNPJ)
	if len(e.EmptyFields) > 0 {
		row.Texts(e.EmptyFields)
	} else {
		row.Null()
	}
	if err := row.EndRow(w.ctx); err != nil {
		return fmt.Errorf("copy entries: %w", pg.Translate(err))
	}
	if time.Since(w.startedAt) > w.copyTime {
		return w.endCopy()
	}
	return nil
}

// endCopy ends the open COPY, if any, and waits until Postgres has accepted its rows.
func (w *entryWriter) endCopy() error {
	if w.copying == nil {
		return nil
	}
	err := w.copying.End(w.ctx)
	w.copying = nil
	if err != nil {
		return fmt.Errorf("copy entries: %w", pg.Translate(err))
	}
	return nil
}

// abandonCopy ends a COPY whose transaction is rolled back for another reason.
func (w *entryWriter) abandonCopy() {
	if w.copying != nil {
		_ = w.copying.Abandon()
		w.copying = nil
	}
}

// doubtfulParameters are the parameters of insert_doubtful_entries.sql.
var doubtfulParameters = pg.Parameters[*entryWriter, NewEntry]{
	Scalars: []pg.Scalar[*entryWriter]{
		pg.One("mailing_id", "uuid", func(w *entryWriter) any { return w.mailing }),
		pg.One("email_column", "text", func(w *entryWriter) any { return w.emailColumn }),
		pg.One("code", "text", func(*entryWriter) any { return CodeDuplicate }),
	},
	Columns: []pg.Column[NewEntry]{
		pg.Each("id", "uuid", pg.UUIDs, func(e *NewEntry) uuid.UUID { return e.ID }),
		pg.Each("line_no", "bigint", pg.BigInts, func(e *NewEntry) int64 { return int64(e.Line) }),
		pg.Each("last_line", "bigint", pg.BigInts, func(e *NewEntry) int64 { return int64(e.LastLine) }),
		pg.Each("email", "text", pg.Texts, func(e *NewEntry) string { return e.Email }),
		pg.Each("token", "text", pg.Texts, func(e *NewEntry) string { return e.Token }),
		pg.Each("status", "text", pg.Texts, func(e *NewEntry) string { return e.status() }),
		pg.Each("invalid_reason", "text", pg.OptionalTexts, func(e *NewEntry) string { return e.InvalidReason }),
		pg.Each("fields", "text", pg.Texts, func(e *NewEntry) string { return e.fields() }),
		pg.Each("nome", "text", pg.OptionalTexts, func(e *NewEntry) string { return e.Nome }),
		pg.Each("razao_social", "text", pg.OptionalTexts, func(e *NewEntry) string { return e.RazaoSocial }),
		pg.Each("recipient_external_id", "text", pg.OptionalTexts, func(e *NewEntry) string { return e.ExternalID }),
		pg.Each("cpf_cnpj_hash", "text", pg.OptionalTexts, func(e *NewEntry) string { return e.CPFCNPJHash }),
		pg.Each("cpf_cnpj_enc", "bytea", pg.Byteas, func(e *NewEntry) []byte { return e.CPFCNPJ }),
		pg.Each("empty_fields", "text", pg.OptionalTexts, func(e *NewEntry) string { return e.emptyFields() }),
	},
}

// rejectsParameters are the parameters of insert_rejects.sql: the mailing and its rejected lines.
var rejectsParameters = pg.Parameters[uuid.UUID, RejectedLine]{
	Scalars: []pg.Scalar[uuid.UUID]{pg.One("mailing_id", "uuid", func(mailing uuid.UUID) any { return mailing })},
	Columns: []pg.Column[RejectedLine]{
		pg.Each("line_no", "bigint", pg.BigInts, func(r *RejectedLine) int64 { return int64(r.Line) }),
		pg.Each("last_line", "bigint", pg.BigInts, func(r *RejectedLine) int64 { return int64(r.LastLine) }),
		pg.Each("column_name", "text", pg.Texts, func(r *RejectedLine) string { return pgtext.WithoutNUL(r.Column) }),
		pg.Each("code", "text", pg.Texts, func(r *RejectedLine) string { return pgtext.WithoutNUL(r.Code) }),
	},
}

// flush ends the COPY and inserts the entries and rejected lines that are held in memory.
func (w *entryWriter) flush() error {
	if err := w.endCopy(); err != nil {
		return err
	}
	if err := w.insertDoubtful(); err != nil {
		return fmt.Errorf("insert entries: %w", pg.Translate(err))
	}
	if rejects := w.rejects; len(rejects) > 0 {
		_, err := w.tx.ExecContext(w.ctx, sql.InsertRejects, rejectsParameters.Arguments(w.mailing, rejects)...)
		if err != nil {
			return fmt.Errorf("insert rejected lines: %w", pg.Translate(err))
		}
	}
	clear(w.doubtful)
	w.doubtful, w.rejects, w.heldBytes = w.doubtful[:0], w.rejects[:0], 0
	return nil
}

func (w *entryWriter) insertDoubtful() error {
	entries := w.doubtful
	if len(entries) == 0 {
		return nil
	}
	var kept []uuid.UUID
	if err := w.tx.SelectContext(w.ctx, &kept, sql.InsertDoubtfulEntries, doubtfulParameters.Arguments(w, entries)...); err != nil {
		return err
	}
	inserted := make(map[uuid.UUID]bool, len(kept))
	for _, id := range kept {
		inserted[id] = true
	}
	for _, e := range entries {
		if inserted[e.ID] {
			w.count(e)
		} else {
			w.counts.Duplicates++
		}
	}
	return nil
}
