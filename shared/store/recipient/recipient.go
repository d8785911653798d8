package recipient

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"email-gateway/shared/email"
	"email-gateway/shared/store/internal/pg"
	"email-gateway/shared/uuidv7"
)

// Recipient is a person a company writes to.
type Recipient struct {
	ID          uuid.UUID
	ExternalID  string
	CPFCNPJHash string
	RazaoSocial string
	Nome        string
	Email       string
}

// ErasedAddress replaces the address of an erased person. No mail can be sent to .invalid.
const ErasedAddress = "erased@erased.invalid"

// DeletedKept is the minimum retention of a deleted recipient's row: an email usually waits at most a
// year and its deadline. An email that waits longer, because it was rescheduled repeatedly or replayed
// late, or its mailing was paused, does not create a recipient (CreateFrom): the missing row may have
// been that of a deleted person.
const DeletedKept = 367 * 24 * time.Hour

// CreateFrom returns the smallest id of an email or an entry that may create a recipient: smaller ids
// were made longer ago than DeletedKept. Computing it in the statement would cost 25 to 90 µs each time.
func CreateFrom() uuid.UUID { return uuidv7.First(uuidv7.Now().Add(-DeletedKept)) }

// ID derives the id of a recipient that a request names without an id: a UUIDv5 over the company and
// the first identifier present, so that the same person has the same id in every request.
func ID(company uuid.UUID, externalID, cpfCNPJHash, address string) uuid.UUID {
	name := cmp.Or(
		prefixed("externalId:", externalID),
		prefixed("cpfCnpjHash:", cpfCNPJHash),
		prefixed("email:", email.NormalAddress(address)),
	)
	return uuid.NewSHA1(company, []byte(name))
}

func prefixed(prefix, value string) string {
	if value == "" {
		return ""
	}
	return prefix + value
}

// recipientMatchesSQL reads recipients and recipient_intakes by primary key and locks
// nothing. Its comparison is that of email.SameAddress.
const recipientMatchesSQL = `
SELECT EXISTS (SELECT FROM recipients WHERE id = $1 AND company_id = $2 AND deleted_at IS NULL
           AND lower(email) = lower($3))
    OR EXISTS (SELECT FROM recipient_intakes WHERE recipient_id = $1 AND company_id = $2
           AND lower(email) = lower($3))`

// RecipientMatches reports whether the company has this recipient, not deleted, with this
// address, or has a pending import of it.
func (s *Store) RecipientMatches(ctx context.Context, company, recipient uuid.UUID, address string) (bool, error) {
	var found bool
	err := s.db.GetContext(ctx, &found, recipientMatchesSQL, recipient, company, address)
	if err != nil {
		return false, fmt.Errorf("look up recipient: %w", pg.Translate(err))
	}
	return found, nil
}

// Known is a recipient that FindRecipient found.
type Known struct {
	ID          uuid.UUID `db:"id"`
	ExternalID  string    `db:"external_id"`
	CPFCNPJHash string    `db:"cpf_cnpj_hash"`
	RazaoSocial string    `db:"razao_social"`
	Nome        string    `db:"nome"`
	Email       string    `db:"email"`
	CreatedAt   time.Time `db:"created_at"`
	UpdatedAt   time.Time `db:"updated_at"`
	// Pending: an import of the person was accepted and is not applied yet.
	// If there is no row of the person, the fields are those of the import.
	Pending bool `db:"pending"`
}

// findRecipientSQL reads recipients, recipient_intakes and email_outbox by primary
// key and locks nothing.
const findRecipientSQL = `
SELECT asked.id,
       coalesce(CASE WHEN r.id IS NULL THEN i.payload ->> 'externalId' ELSE r.external_id END, '') AS external_id,
       coalesce(CASE WHEN r.id IS NULL THEN i.payload ->> 'cpfCnpjHash' ELSE r.cpf_cnpj_hash END, '') AS cpf_cnpj_hash,
       coalesce(CASE WHEN r.id IS NULL THEN i.payload ->> 'razaoSocial' ELSE r.razao_social END, '') AS razao_social,
       coalesce(CASE WHEN r.id IS NULL THEN i.payload ->> 'nome' ELSE r.nome END, '') AS nome,
       coalesce(r.email, i.email) AS email, coalesce(r.created_at, i.created_at) AS created_at,
       coalesce(r.updated_at, i.created_at) AS updated_at, i.outbox_id IS NOT NULL AS pending
FROM (SELECT $1::uuid AS id) asked
LEFT JOIN recipients r ON r.id = asked.id AND r.company_id = $2 AND r.deleted_at IS NULL
LEFT JOIN LATERAL (
    SELECT w.outbox_id, w.email, o.payload, o.created_at
    FROM recipient_intakes w JOIN email_outbox o ON o.id = w.outbox_id AND o.company_id = w.company_id
    WHERE w.recipient_id = asked.id AND w.company_id = $2
    ORDER BY w.outbox_id DESC LIMIT 1
) i ON true
WHERE r.id IS NOT NULL OR i.outbox_id IS NOT NULL`

// FindRecipient finds a recipient of the company. It returns pg.ErrNotFound if there is none, or it
// was deleted.
func (s *Store) FindRecipient(ctx context.Context, company, recipient uuid.UUID) (Known, error) {
	var found Known
	if err := s.db.GetContext(ctx, &found, findRecipientSQL, recipient, company); err != nil {
		return Known{}, fmt.Errorf("find recipient: %w", pg.Translate(err))
	}
	return found, nil
}

// deleteRecipientSQL locks the recipient and its waiting imports, by primary key. The row stays,
// because emails name it, but without the encrypted number. Every update with an id below the
// deletion's id ($3, accepted at $4) is void, and so is every update found here, even if
// Postgres's clock was ahead when its id was made. If only imports wait, a row is inserted.
const deleteRecipientSQL = `
WITH waiting AS (
    DELETE FROM recipient_intakes WHERE recipient_id = $1 AND company_id = $2 RETURNING outbox_id, email
), last AS (
    (SELECT email, outbox_id FROM waiting ORDER BY outbox_id DESC LIMIT 1)
    UNION ALL
    SELECT email, intake_id FROM recipients
    WHERE id = $1 AND company_id = $2 AND NOT EXISTS (SELECT FROM waiting)
)
INSERT INTO recipients (id, company_id, email, intake_id, merged_by, deletion_id, deleted_at)
SELECT $1, $2, email, greatest(outbox_id, $3), greatest(outbox_id, $3), greatest(outbox_id, $3), $4 FROM last
ON CONFLICT (id) DO UPDATE SET
    intake_id = greatest(recipients.intake_id, excluded.intake_id),
    merged_by = greatest(recipients.intake_id, excluded.intake_id),
    deletion_id = greatest(recipients.deletion_id, recipients.intake_id, excluded.deletion_id,
                           recipients.external_id_by, recipients.cpf_cnpj_by, recipients.razao_social_by, recipients.nome_by),
    cpf_cnpj_enc = NULL,
    cpf_cnpj_enc_by = NULL,
    updated_at = CASE WHEN recipients.deleted_at IS NULL THEN now() ELSE recipients.updated_at END,
    deleted_at = greatest(recipients.deleted_at, excluded.deleted_at)
WHERE recipients.company_id = excluded.company_id`

// DeleteRecipient marks a recipient of the company as deleted, also if it is deleted already. It
// returns pg.ErrNotFound if there is none. Updates accepted before the deletion have no effect,
// however late they arrive. An email or import accepted later creates a new person with the same id.
func (s *Store) DeleteRecipient(ctx context.Context, company, recipient uuid.UUID) error {
	id := uuidv7.New()
	// While a worker writes the person's only import, the statement may see neither the waiting import
	// nor the recipient. The second call sees the recipient.
	err := s.deleteRecipient(ctx, company, recipient, id)
	if errors.Is(err, pg.ErrNotFound) {
		err = s.deleteRecipient(ctx, company, recipient, id)
	}
	return err
}

func (s *Store) deleteRecipient(ctx context.Context, company, recipient, id uuid.UUID) error {
	n, err := s.db.ChangeBounded(ctx, pg.HeldRow{Company: company, Name: recipient.String()}, deleteRecipientSQL, recipient, company, id, uuidv7.Time(id))
	if err == nil && n == 0 {
		err = pg.ErrNotFound
	}
	if err != nil {
		return fmt.Errorf("delete recipient: %w", err)
	}
	return nil
}
