package person

import (
	"context"
	"slices"

	"github.com/google/uuid"
	"github.com/lib/pq"

	"email-gateway/shared/store/internal/pg"
	"email-gateway/shared/store/recipient"
)

// clearSharedRecipientsSQL locks recipients by primary key. Of each it removes the address and the number that are the
// person's ($3, $4), and the names that came in the same email or import as one of these. Another statement, also an older
// one, may then fill them: intake_id is older than every statement, and merged_by equal to it, so that the columns …_by stay
// valid. A field that was written after $5 stays unless $6.
const clearSharedRecipientsSQL = `
WITH stated AS (
    SELECT id, lower(email) = ANY ($3::text[]) AS own_address, (cpf_cnpj_hash = ANY ($4::text[])) IS TRUE AS own_number, intake_id,
           CASE WHEN merged_by = intake_id THEN external_id_by ELSE intake_id END AS external_id_by,
           CASE WHEN merged_by = intake_id THEN cpf_cnpj_by ELSE intake_id END AS cpf_cnpj_by,
           CASE WHEN merged_by = intake_id THEN razao_social_by ELSE intake_id END AS razao_social_by,
           CASE WHEN merged_by = intake_id THEN nome_by ELSE intake_id END AS nome_by
    FROM recipients WHERE company_id = $1 AND id = ANY ($2::uuid[]) AND deleted_at IS NULL FOR UPDATE
), own AS (
    SELECT s.*, d.address, d.number, ARRAY[CASE WHEN d.address THEN s.intake_id END, CASE WHEN d.number THEN s.cpf_cnpj_by END] AS statements
    FROM stated s, LATERAL (SELECT s.own_address AND ($6 OR coalesce(s.intake_id, $5::uuid) <= $5) AS address,
                                   s.own_number AND ($6 OR coalesce(s.cpf_cnpj_by, $5) <= $5) AS number) d
    WHERE d.address OR d.number
)
UPDATE recipients r SET
    email = CASE WHEN o.address THEN '` + recipient.ErasedAddress + `' ELSE r.email END,
    intake_id = CASE WHEN o.address THEN '00000000-0000-0000-0000-000000000000' ELSE r.intake_id END,
    merged_by = CASE WHEN o.address THEN '00000000-0000-0000-0000-000000000000' ELSE r.intake_id END,
    external_id_by = o.external_id_by,
    cpf_cnpj_hash = CASE WHEN NOT o.number THEN r.cpf_cnpj_hash END,
    cpf_cnpj_by = CASE WHEN NOT o.number THEN o.cpf_cnpj_by END,
    cpf_cnpj_enc = CASE WHEN NOT o.number THEN r.cpf_cnpj_enc END,
    cpf_cnpj_enc_by = CASE WHEN NOT o.number THEN r.cpf_cnpj_enc_by END,
    razao_social = CASE WHEN (o.razao_social_by = ANY (o.statements)) IS NOT TRUE THEN r.razao_social END,
    razao_social_by = o.razao_social_by,
    nome = CASE WHEN (o.nome_by = ANY (o.statements)) IS NOT TRUE THEN r.nome END,
    nome_by = o.nome_by,
    updated_at = now()
FROM own o WHERE r.id = o.id
RETURNING r.id`

// ClearSharedRecipients removes the person's address, number and names from recipients that other people share, and nothing
// else: emails and imports of the others are merged into the same row. deletion and all are those of EraseRecipients.
func (s *Store) ClearSharedRecipients(ctx context.Context, p Person, deletion uuid.UUID, ids []uuid.UUID, all bool) ([]string, error) {
	return s.erased(ctx, "clear shared recipients", clearSharedRecipientsSQL, p.CompanyID, pg.UUIDArray(ids), pq.StringArray(p.Addresses), pq.StringArray(p.Hashes), deletion, all)
}

// SharesRecipient reports whether several people have the recipient's id.
func (p *Person) SharesRecipient(id uuid.UUID) bool { return slices.Contains(p.SharedRecipients, id) }
