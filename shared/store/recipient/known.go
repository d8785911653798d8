package recipient

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/jmoiron/sqlx"

	"email-gateway/shared/store/internal/pg"
	"email-gateway/shared/store/sql"
)

// knownParameters are the parameters of known_recipients.sql: the company and the ids.
var knownParameters = pg.Parameters[uuid.UUID, uuid.UUID]{
	Scalars: []pg.Scalar[uuid.UUID]{pg.One("company_id", "uuid", func(company uuid.UUID) any { return company })},
	Columns: []pg.Column[uuid.UUID]{pg.Each("id", "uuid", pg.UUIDs, func(id *uuid.UUID) uuid.UUID { return *id })},
}

// FindKnown returns which of the ids are recipients of the company or have a pending import.
func FindKnown(ctx context.Context, tx *sqlx.Tx, company uuid.UUID, ids []uuid.UUID) (map[uuid.UUID]bool, error) {
	var found []uuid.UUID
	if err := tx.SelectContext(ctx, &found, sql.KnownRecipients, knownParameters.Arguments(company, ids)...); err != nil {
		return nil, fmt.Errorf("look for recipients: %w", pg.Translate(err))
	}
	known := make(map[uuid.UUID]bool, len(found))
	for _, id := range found {
		known[id] = true
	}
	return known, nil
}
