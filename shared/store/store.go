// Package store opens the database and combines the packages below it in one Store. Each of them holds the SQL
// statements of one subject. Every statement is next to the one method that runs it, with a comment that names the
// index it uses and the rows it locks. Callers import the package that declares a type, a constant or an error; only what
// the internal package pg declares has a second name here, in errors.go.
//
// The api, the dispatcher, the worker and gatewayctl use it. None of them contains SQL; each declares an interface with
// the methods that it calls.
package store

import (
	"context"

	"github.com/google/uuid"

	"email-gateway/shared/store/audit"
	"email-gateway/shared/store/breaker"
	"email-gateway/shared/store/deadletter"
	"email-gateway/shared/store/dispatch"
	"email-gateway/shared/store/emails"
	"email-gateway/shared/store/encryption"
	"email-gateway/shared/store/feedback"
	"email-gateway/shared/store/file"
	"email-gateway/shared/store/idempotency"
	"email-gateway/shared/store/internal/pg"
	"email-gateway/shared/store/lane"
	"email-gateway/shared/store/mailing"
	"email-gateway/shared/store/mailingreport"
	"email-gateway/shared/store/outbox"
	"email-gateway/shared/store/process"
	"email-gateway/shared/store/quota"
	"email-gateway/shared/store/recipient"
	"email-gateway/shared/store/suppression"
	"email-gateway/shared/store/tenant"
)

// The embedded stores have different names here, because most of these types are called Store.
type (
	auditLog         = audit.Log
	breakers         = breaker.Store
	companyQuotas    = quota.Store
	deadLetters      = deadletter.Store
	dispatching      = dispatch.Store
	emailReads       = emails.Store
	encryptedNumbers = encryption.Store
	feedbacks        = feedback.Store
	idempotencyKeys  = idempotency.Store
	lanes            = lane.Store
	mailings         = mailing.Store
	mailingReports   = mailingreport.Store
	outboxes         = outbox.Store
	processes        = process.Store
	recipients       = recipient.Store
	suppressions     = suppression.Store
	tenants          = tenant.Store
)

// Store has the methods of the stores that it embeds. The other packages below this one have stores that main makes:
// event.New(s.DB()). It is safe for concurrent use.
type Store struct {
	*auditLog
	*breakers
	*companyQuotas
	*deadLetters
	*dispatching
	*emailReads
	*encryptedNumbers
	*feedbacks
	*idempotencyKeys
	*lanes
	*mailings
	*mailingReports
	*outboxes
	*processes
	*recipients
	*suppressions
	*tenants

	db *pg.DB
}

// Open connects to the database named by a postgres:// URL and checks that it answers; see Options.AllowUnreachable.
func Open(ctx context.Context, databaseURL string, o Options) (*Store, error) {
	db, err := pg.Open(ctx, databaseURL, o)
	if err != nil {
		return nil, err
	}
	s := &Store{
		auditLog:         audit.New(db),
		breakers:         breaker.New(db),
		companyQuotas:    quota.New(db),
		emailReads:       emails.New(db),
		encryptedNumbers: encryption.New(db),
		feedbacks:        feedback.New(db),
		idempotencyKeys:  idempotency.New(db),
		lanes:            lane.New(db),
		processes:        process.New(db),

		db: db,
	}
	s.suppressions = suppression.New(db, s.companyQuotas)
	s.outboxes = outbox.New(db, s.idempotencyKeys, s.companyQuotas)
	s.recipients = recipient.New(db, s.idempotencyKeys, s.companyQuotas, s.Exists)
	s.mailings = mailing.New(db, s.idempotencyKeys)
	s.mailingReports = mailingreport.New(db, s.mailings)
	s.deadLetters = deadletter.New(db, s.mailings)
	s.dispatching = dispatch.New(db, s.breakers, s.WakeNamed)
	s.tenants = tenant.New(db, func(ctx context.Context, company uuid.UUID) error {
		return s.WakeLanes(ctx, []lane.Lanes{{Company: company}})
	})
	return s, nil
}

// DB returns the connections to the database, for the packages below this one: event.New(s.DB()).
func (s *Store) DB() *DB { return s.db }

// Ping checks the connection to Postgres.
func (s *Store) Ping(ctx context.Context) error { return s.db.Ping(ctx) }

// Confirm returns nil if Postgres answers and a synchronous standby, where there is one, has everything that was
// visible before. See ErrUnreplicated.
func (s *Store) Confirm(ctx context.Context) error { return s.db.Confirm(ctx) }

// Unreplicated returns how many commits of this process ended with ErrUnreplicated.
func (s *Store) Unreplicated() int64 { return s.db.Unreplicated() }

// Pooled reports whether a pooler between this program and Postgres assigns a server connection to each transaction
// instead of each client connection.
func (s *Store) Pooled(ctx context.Context) (bool, error) { return s.db.Pooled(ctx) }

// Close closes all connections. Postgres rolls back what is still running on them.
func (s *Store) Close() { s.db.Close() }

// AddFile is file.Add.
func (s *Store) AddFile(ctx context.Context, f file.File) (file.File, error) {
	return file.Add(ctx, s.db, s.companyQuotas, f)
}
