// Package store holds every SQL statement of the gateway's programs: one file per
// table (one per step for the outbox), each statement beside the
// one method that runs it, with the index it uses and the rows it locks. The packages
// below it hold those of one subject each.
//
// It is used by the api, by dispatcher and worker, and by gatewayctl. None of them
// contains SQL; each declares the few methods it calls as an interface of its own.
package store

import (
	"context"

	"github.com/google/uuid"

	"email-gateway/shared/store/audit"
	"email-gateway/shared/store/breaker"
	"email-gateway/shared/store/deadletter"
	"email-gateway/shared/store/emails"
	"email-gateway/shared/store/encryption"
	"email-gateway/shared/store/feedback"
	"email-gateway/shared/store/file"
	"email-gateway/shared/store/idempotency"
	"email-gateway/shared/store/internal/pg"
	"email-gateway/shared/store/lane"
	"email-gateway/shared/store/mailing"
	"email-gateway/shared/store/outbox"
	"email-gateway/shared/store/process"
	"email-gateway/shared/store/quota"
	"email-gateway/shared/store/recipient"
	"email-gateway/shared/store/suppression"
	"email-gateway/shared/store/tenant"
)

// Store runs the statements. It is safe for concurrent use.
type Store struct {
	*auditLog
	*processes
	*tenants
	*breakers
	*deadLetters
	*mailings
	*emailReads
	*feedbacks
	*outboxes
	*encryptedNumbers
	*recipients
	*suppressions
	*companyQuotas
	*idempotencyKeys
	*lanes

	db    *pg.DB
	files *file.Store
}

// Open connects to the database named by a postgres:// URL and checks that it
// answers, see Options.AllowUnreachable.
func Open(ctx context.Context, databaseURL string, o pg.Options) (*Store, error) {
	db, err := pg.Open(ctx, databaseURL, o)
	if err != nil {
		return nil, err
	}
	dispatchLanes := lane.New(db)
	keys := idempotency.New(db)
	quotas := quota.New(db)
	suppressed := suppression.New(db, quotas)
	sealed := encryption.New(db)
	outboxRows := outbox.New(db, keys, quotas)
	notifications := feedback.New(db)
	found := emails.New(db)
	uploads := mailing.New(db, keys)
	letters := deadletter.New(db, outboxRows, uploads)
	s := &Store{
		auditLog:         audit.New(db),
		processes:        process.New(db),
		breakers:         breaker.New(db),
		deadLetters:      letters,
		mailings:         uploads,
		emailReads:       found,
		feedbacks:        notifications,
		outboxes:         outboxRows,
		recipients:       recipient.New(db, keys, quotas, outboxRows.Exists),
		encryptedNumbers: sealed,
		suppressions:     suppressed,
		companyQuotas:    quotas,
		idempotencyKeys:  keys,
		lanes:            dispatchLanes,

		db:    db,
		files: file.New(db),
	}
	s.tenants = tenant.New(db, func(ctx context.Context, company uuid.UUID) error {
		return dispatchLanes.WakeLanes(ctx, []lane.Lanes{{Company: company}})
	})
	return s, nil
}

// DB is the connections to the database, for the packages below this one: event.New(s.DB()).
func (s *Store) DB() *pg.DB { return s.db }

// Ping checks the connection to Postgres.
func (s *Store) Ping(ctx context.Context) error { return s.db.Ping(ctx) }

// Confirm returns nil when Postgres answers, and a synchronous standby, where there is one, has all that
// was visible before. See ErrUnreplicated.
func (s *Store) Confirm(ctx context.Context) error { return s.db.Confirm(ctx) }

// Unreplicated is how many commits of this process ended with ErrUnreplicated.
func (s *Store) Unreplicated() int64 { return s.db.Unreplicated() }

// Pooled reports whether a pooler between this program and Postgres assigns a server connection to each transaction
// instead of each connection.
func (s *Store) Pooled(ctx context.Context) (bool, error) { return s.db.Pooled(ctx) }

// Close ends all connections. What is still running on them is rolled back.
func (s *Store) Close() { s.db.Close() }
