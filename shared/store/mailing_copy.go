package store

import (
	_ "embed"
	"fmt"
	"time"

	"github.com/google/uuid"
)

// copyEntriesSQL adds to both indexes of mailing_entries and locks nothing: the rows
// are unknown to everybody else until the commit.
const copyEntriesSQL = `
COPY mailing_entries (id, mailing_id, line_no, email, token, status, invalid_reason, fields,
                      nome, razao_social, recipient_external_id, cpf_cnpj_hash, cpf_cnpj_enc, empty_fields) FROM STDIN`

func (w *entryWriter) copyEntry(e *NewEntry) error {
	if w.copying == nil {
		var err error
		if w.copying, err = beginCopy(w.ctx, w.tx.conn, copyEntriesSQL); err != nil {
			return fmt.Errorf("copy entries: %w", translate(err))
		}
		w.begun = time.Now()
	}
	row := w.copying
	row.uuid(e.ID)
	row.uuid(w.mailing)
	row.bigint(int64(e.Line))
	row.text(e.Email)
	row.text(e.Token)
	row.text(e.status())
	row.optionalText(e.InvalidReason)
	row.texts(e.Fields)
	row.optionalText(e.Nome)
	row.optionalText(e.RazaoSocial)
	row.optionalText(e.ExternalID)
	row.optionalText(e.CPFCNPJHash)
	row.optionalBytea(e.CPFCNPJ)
	if len(e.EmptyFields) > 0 {
		row.texts(e.EmptyFields)
	} else {
		row.null()
	}
	if err := row.endRow(w.ctx); err != nil {
		return fmt.Errorf("copy entries: %w", translate(err))
	}
	if time.Since(w.begun) > w.copyTime {
		return w.endCopy()
	}
	return nil
}

// endCopy waits until Postgres has taken what was sent.
func (w *entryWriter) endCopy() error {
	if w.copying == nil {
		return nil
	}
	err := w.copying.end(w.ctx)
	w.copying = nil
	if err != nil {
		return fmt.Errorf("copy entries: %w", translate(err))
	}
	return nil
}

// abandonCopy ends a COPY whose transaction is rolled back for another reason.
func (w *entryWriter) abandonCopy() {
	if w.copying != nil {
		_ = w.copying.abandon()
		w.copying = nil
	}
}

// insertDoubtfulSQL inserts entries whose addresses the mailing may have already. What is left out
// becomes a reject.
//
//go:embed sql/insert_doubtful_entries.sql
var insertDoubtfulSQL string

// doubtfulParameters are those of insert_doubtful_entries.sql.
var doubtfulParameters = parameters[*entryWriter, NewEntry]{
	scalars: []scalar[*entryWriter]{
		{"mailing_id", "uuid", func(w *entryWriter) any { return w.mailing }},
		{"email_column", "text", func(w *entryWriter) any { return w.emailColumn }},
		{"code", "text", func(*entryWriter) any { return CodeDuplicate }},
	},
	columns: []column[NewEntry]{
		each("id", "uuid", uuids, func(e *NewEntry) uuid.UUID { return e.ID }),
		each("line_no", "bigint", bigints, func(e *NewEntry) int64 { return int64(e.Line) }),
		each("email", "text", texts, func(e *NewEntry) string { return e.Email }),
		each("token", "text", texts, func(e *NewEntry) string { return e.Token }),
		each("status", "text", texts, func(e *NewEntry) string { return e.status() }),
		each("invalid_reason", "text", optionalTexts, func(e *NewEntry) string { return e.InvalidReason }),
		each("fields", "text", texts, func(e *NewEntry) string { return e.fields() }),
		each("nome", "text", optionalTexts, func(e *NewEntry) string { return e.Nome }),
		each("razao_social", "text", optionalTexts, func(e *NewEntry) string { return e.RazaoSocial }),
		each("recipient_external_id", "text", optionalTexts, func(e *NewEntry) string { return e.ExternalID }),
		each("cpf_cnpj_hash", "text", optionalTexts, func(e *NewEntry) string { return e.CPFCNPJHash }),
		each("cpf_cnpj_enc", "bytea", byteas, func(e *NewEntry) []byte { return e.CPFCNPJ }),
		each("empty_fields", "text", optionalTexts, func(e *NewEntry) string { return e.emptyFields() }),
	},
}

// insertRejectsSQL inserts lines that are not entries.
//
//go:embed sql/insert_rejects.sql
var insertRejectsSQL string

// rejectsParameters are those of insert_rejects.sql: the mailing, and its lines.
var rejectsParameters = parameters[uuid.UUID, RejectedLine]{
	scalars: []scalar[uuid.UUID]{{"mailing_id", "uuid", func(mailing uuid.UUID) any { return mailing }}},
	columns: []column[RejectedLine]{
		each("line_no", "bigint", bigints, func(r *RejectedLine) int64 { return int64(r.Line) }),
		each("column_name", "text", texts, func(r *RejectedLine) string { return withoutNUL(r.Column) }),
		each("code", "text", texts, func(r *RejectedLine) string { return withoutNUL(r.Code) }),
	},
}

// flush ends the COPY and writes what was held back.
func (w *entryWriter) flush() error {
	if err := w.endCopy(); err != nil {
		return err
	}
	if err := w.insertDoubtful(); err != nil {
		return fmt.Errorf("insert entries: %w", translate(err))
	}
	if rejects := w.rejects; len(rejects) > 0 {
		_, err := w.tx.ExecContext(w.ctx, insertRejectsSQL, rejectsParameters.arguments(w.mailing, rejects)...)
		if err != nil {
			return fmt.Errorf("insert rejected lines: %w", translate(err))
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
	if err := w.tx.SelectContext(w.ctx, &kept, insertDoubtfulSQL, doubtfulParameters.arguments(w, entries)...); err != nil {
		return err
	}
	stands := make(map[uuid.UUID]bool, len(kept))
	for _, id := range kept {
		stands[id] = true
	}
	for _, e := range entries {
		if stands[e.ID] {
			w.count(e)
		} else {
			w.counts.Duplicates++
		}
	}
	return nil
}
