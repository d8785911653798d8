package mailing_test

import (
	"testing"
)

// The subject of a stored template is rendered when the entry becomes an email; a row that it cannot be rendered with is
// invalid and stops no other.
func TestExpand_StoredTemplate(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	id, _ := b.mailing(t, entry{email: "ana@example.com", cidade: "Recife"}, entry{email: "bia@example.com"}, entry{email: "caio@example.com", cidade: "a\nb"})
	b.exec(t, `UPDATE mailings SET template = 'natal@1', subject = 'Oi{{#cidade}} de {{cidade}}{{/cidade}} {{uf}} {{unsubscribe_url}}',
		template_variables = '[{"name": "uf", "default": "PE"}]' WHERE id = $1`, id)
	if err := handle(t.Context(), b.params(), taskOf(id, 1)); err != nil {
		t.Fatal(err)
	}
	b.want(t, "Oi de Recife PE https://u.example/ana@example.com, Oi PE https://u.example/bia@example.com",
		`SELECT string_agg(payload ->> 'subject', ', ' ORDER BY id) FROM email_outbox WHERE target = 'email:send'`)
	b.want(t, "subject: VALUE_CONTROL of cidade: must not contain line ends or other control characters",
		`SELECT string_agg(validation_details, ' ') FROM mailing_entries WHERE status = 'INVALID'`)
}

// A section of the subject over columns with dots is rendered as in the dry run, also if only the bodies write these columns.
func TestExpand_StoredTemplateWithObject(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	id, _ := b.mailing(t, entry{email: "ana@example.com", cidade: "Acme"}, entry{email: "bia@example.com"})
	b.exec(t, `UPDATE mailings SET template = 'natal@1', subject = '{{#empresa}}Proposta PJ{{/empresa}}{{^empresa}}Proposta{{/empresa}}',
		html = '<p>{{empresa.nome}}</p>', fields = array_replace(fields, 'cidade', 'empresa.nome'), template_variables = '[]' WHERE id = $1`, id)
	if err := handle(t.Context(), b.params(), taskOf(id, 1)); err != nil {
		t.Fatal(err)
	}
	b.want(t, "Proposta PJ, Proposta", `SELECT string_agg(payload ->> 'subject', ', ' ORDER BY id) FROM email_outbox WHERE target = 'email:send'`)
}
