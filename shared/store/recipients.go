package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"email-gateway/shared/email"
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

// RecipientID derives the id of a recipient that was given without one: UUIDv5
// over the company and the first identifier present, so that the same person has
// the same id in every request.
func RecipientID(company uuid.UUID, externalID, cpfCNPJHash, address string) uuid.UUID {
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
// nothing.
const recipientMatchesSQL = `
SELECT EXISTS (SELECT FROM recipients WHERE id = $1 AND company_id = $2 AND deleted_at IS NULL
           AND split_part(email, '@', 1) || '@' || lower(split_part(email, '@', 2)) = $3)
    OR EXISTS (SELECT FROM recipient_intakes WHERE recipient_id = $1 AND company_id = $2
           AND split_part(email, '@', 1) || '@' || lower(split_part(email, '@', 2)) = $3)`

// RecipientMatches says whether the company has this recipient, undeleted, at this
// address, or has handed it in and it has yet to be written down.
func (s *Store) RecipientMatches(ctx context.Context, company, recipient uuid.UUID, address string) (bool, error) {
	var found bool
	err := s.db.GetContext(ctx, &found, recipientMatchesSQL, recipient, company, email.NormalAddress(address))
	if err != nil {
		return false, fmt.Errorf("look up recipient: %w", translate(err))
	}
	return found, nil
}

// KnownRecipient is a recipient as it can be looked up.
type KnownRecipient struct {
	ID          uuid.UUID `db:"id"`
	ExternalID  string    `db:"external_id"`
	CPFCNPJHash string    `db:"cpf_cnpj_hash"`
	RazaoSocial string    `db:"razao_social"`
	Nome        string    `db:"nome"`
	Email       string    `db:"email"`
	CreatedAt   time.Time `db:"created_at"`
	UpdatedAt   time.Time `db:"updated_at"`
	// Pending says that news of the person were accepted and are not written down yet.
	// Of somebody who is not written down at all, the fields are those news.
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
    FROM recipient_intakes w JOIN email_outbox o ON o.id = w.outbox_id
    WHERE w.recipient_id = asked.id AND w.company_id = $2
    ORDER BY w.outbox_id DESC LIMIT 1
) i ON true
WHERE r.id IS NOT NULL OR i.outbox_id IS NOT NULL`

// FindRecipient finds a recipient of the company; ErrNotFound if there is none, or it
// was deleted.
func (s *Store) FindRecipient(ctx context.Context, company, recipient uuid.UUID) (KnownRecipient, error) {
	var found KnownRecipient
	if err := s.db.GetContext(ctx, &found, findRecipientSQL, recipient, company); err != nil {
		return KnownRecipient{}, fmt.Errorf("find recipient: %w", translate(err))
	}
	return found, nil
}

// deleteRecipientSQL locks the recipient and its waiting intakes, by primary key.
// The row stays, for the emails that name it, without the encrypted number. Intakes
// that wait come too late now: the row says that it knows the newest of them. That
// row is made where there is none yet.
const deleteRecipientSQL = `
WITH waiting AS (
    DELETE FROM recipient_intakes WHERE recipient_id = $1 AND company_id = $2 RETURNING outbox_id, email
), last AS (
    (SELECT email, outbox_id FROM waiting ORDER BY outbox_id DESC LIMIT 1)
    UNION ALL
    SELECT email, intake_id FROM recipients
    WHERE id = $1 AND company_id = $2 AND NOT EXISTS (SELECT FROM waiting)
)
INSERT INTO recipients (id, company_id, email, intake_id, deleted_at)
SELECT $1, $2, email, outbox_id, now() FROM last
ON CONFLICT (id) DO UPDATE SET
    intake_id = greatest(recipients.intake_id, excluded.intake_id),
    cpf_cnpj_enc = NULL,
    updated_at = CASE WHEN recipients.deleted_at IS NULL THEN now() ELSE recipients.updated_at END,
    deleted_at = coalesce(recipients.deleted_at, now())
WHERE recipients.company_id = excluded.company_id`

// DeleteRecipient marks a recipient of the company as deleted; whoever is deleted
// already stays so. ErrNotFound if there is none. An email or an intake that is
// accepted later brings the person back.
func (s *Store) DeleteRecipient(ctx context.Context, company, recipient uuid.UUID) error {
	// A worker may be writing down the person's only intake: it is not seen as waiting
	// any more, nor as a recipient yet. A second look sees the recipient.
	err := s.deleteRecipient(ctx, company, recipient)
	if errors.Is(err, ErrNotFound) {
		err = s.deleteRecipient(ctx, company, recipient)
	}
	return err
}

func (s *Store) deleteRecipient(ctx context.Context, company, recipient uuid.UUID) error {
	_, err := repeat(func() ([]struct{}, error) {
		return nil, s.changeOne(ctx, "delete recipient", deleteRecipientSQL, recipient, company)
	})
	return err
}
