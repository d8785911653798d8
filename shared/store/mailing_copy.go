package store

import (
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

// insertDoubtfulSQL inserts by mailing_entries_address, in the order of the lines: the
// first of several stands. What is left out becomes a verdict. The entries of a group
// are later lines than those copied before with the same address, and none with such
// an address is copied after them, since the filter forgets nothing.
const insertDoubtfulSQL = `
WITH input AS (
    SELECT * FROM unnest($2::uuid[], $3::bigint[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[],
                         $9::text[], $10::text[], $11::text[], $12::text[], $13::bytea[], $14::text[])
    AS t(id, line_no, email, token, status, invalid_reason, fields, nome, razao_social, recipient_external_id, cpf_cnpj_hash, cpf_cnpj_enc, empty_fields)
), kept AS (
    INSERT INTO mailing_entries (id, mailing_id, line_no, email, token, status, invalid_reason, fields,
                                 nome, razao_social, recipient_external_id, cpf_cnpj_hash, cpf_cnpj_enc, empty_fields)
    SELECT id, $1, line_no, email, token, status, invalid_reason, fields::text[],
           nome, razao_social, recipient_external_id, cpf_cnpj_hash, cpf_cnpj_enc, empty_fields::text[]
    FROM input ORDER BY line_no
    ON CONFLICT (mailing_id, lower(email)) DO NOTHING
    RETURNING id
), left_out AS (
    INSERT INTO mailing_rejects (mailing_id, line_no, column_name, code)
    SELECT $1, line_no, nullif($15, ''), $16 FROM input WHERE id NOT IN (SELECT id FROM kept)
)
SELECT id FROM kept`

// insertRejectsSQL inserts by mailing_rejects' primary key.
const insertRejectsSQL = `
INSERT INTO mailing_rejects (mailing_id, line_no, column_name, code)
SELECT $1, t.line_no, nullif(t.column_name, ''), t.code
FROM unnest($2::bigint[], $3::text[], $4::text[]) AS t(line_no, column_name, code)`

// flush ends the COPY and writes what was held back.
func (w *entryWriter) flush() error {
	if err := w.endCopy(); err != nil {
		return err
	}
	if err := w.insertDoubtful(); err != nil {
		return fmt.Errorf("insert entries: %w", translate(err))
	}
	if rejects := w.rejects; len(rejects) > 0 {
		_, err := w.tx.ExecContext(w.ctx, insertRejectsSQL, w.mailing,
			bigints(rejects, func(r *RejectedLine) int64 { return int64(r.Line) }),
			texts(rejects, func(r *RejectedLine) string { return withoutNUL(r.Column) }),
			texts(rejects, func(r *RejectedLine) string { return withoutNUL(r.Code) }))
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
	err := w.tx.SelectContext(w.ctx, &kept, insertDoubtfulSQL, w.mailing,
		uuids(entries, func(e *NewEntry) uuid.UUID { return e.ID }),
		bigints(entries, func(e *NewEntry) int64 { return int64(e.Line) }),
		texts(entries, func(e *NewEntry) string { return e.Email }),
		texts(entries, func(e *NewEntry) string { return e.Token }),
		texts(entries, func(e *NewEntry) string { return e.status() }),
		optionalTexts(entries, func(e *NewEntry) string { return e.InvalidReason }),
		texts(entries, func(e *NewEntry) string { return e.fields() }),
		optionalTexts(entries, func(e *NewEntry) string { return e.Nome }),
		optionalTexts(entries, func(e *NewEntry) string { return e.RazaoSocial }),
		optionalTexts(entries, func(e *NewEntry) string { return e.ExternalID }),
		optionalTexts(entries, func(e *NewEntry) string { return e.CPFCNPJHash }),
		byteas(entries, func(e *NewEntry) []byte { return e.CPFCNPJ }),
		optionalTexts(entries, func(e *NewEntry) string { return e.emptyFields() }),
		w.emailColumn, CodeDuplicate)
	if err != nil {
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
