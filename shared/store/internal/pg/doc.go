// Package pg is the common base of the packages below shared/store: connections to Postgres that detect a silent or
// demoted server (DB), errors that classify the outcome of a write, statements that are prepared once (Prepared), rows
// that many goroutines write in one commit (Group), arrays and the parameters of grouped statements, bounded
// waits for the locks of other transactions (Bounded, InBoundedTx, InCompanyTx), keys that such a lock delays (LockedKeys),
// and NOTIFY (Subscription). It has no table of its own. COPY is in pgcopy.
//
// A package of one subject has this form, as shared/store/event does:
//
//	// Store runs the statements of the feed. It is safe for concurrent use.
//	type Store struct {
//		db   *pg.DB
//		page *pg.Prepared // for statements that run for each request or email; others are sent whole
//	}
//
//	// New makes a Store: event.New(st.DB()) in main, which cannot import this package.
//	func New(db *pg.DB) *Store { return &Store{db: db, page: db.Prepare(pageSQL)} }
//
//	// pageSQL reads along feed_pkey from the cursor and locks nothing.
//	const pageSQL = `SELECT … FROM … WHERE company_id = $1 AND …`
//
//	func (s *Store) Page(ctx context.Context, company uuid.UUID, after int64) (page []Event, err error) {
//		return page, pg.Wrap("list events", pg.Translate(s.page.Select(ctx, &page, company, after)))
//	}
//
// Statements are constants or embedded files, whose comments name the index and the locks. Tests find the statements of
// every package below shared/store by the methods that run them. store/roles_test.go lists each such method, as
// "event.Page", with the program that calls it; store/tenancy_test.go lists each statement that does not name the
// company, with the reason. Prepared statements are made in the composite literal of their struct, as above. db.Select
// and db.Get read. db.Exec writes in one statement that may run twice (see Write). db.InTx runs several statements, and
// the errors of its transaction go through Translate. Errors other than those of this package (ErrNotFound,
// ErrUnavailable, ErrUnknownOutcome, …, which package store has under the same names) are declared beside the method
// that returns them. Every wait for a lock of another transaction is bounded: by SET LOCAL lock_timeout (BoundWaitSQL)
// and Bounded.
package pg
