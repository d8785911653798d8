// Package pg is what the packages below shared/store have in common: connections to Postgres that notice a silent or
// demoted server (DB), errors that classify the outcome of a write, statements that are prepared once (Prepared), rows that many
// goroutines write in one commit (Group), COPY, arrays and the parameters of grouped statements, bounded waits for the locks
// of others (Bounded, InBoundedTx), keys that such a lock delays (Aside), and NOTIFY (Subscription). It has no table of its own.
//
// A package of one subject, here shared/store/event, is written so:
//
//	// Store runs the statements of the feed. It is safe for concurrent use.
//	type Store struct {
//		db   *pg.DB
//		page *pg.Prepared // of what is run for each request or email; all else is sent whole
//	}
//
//	// New makes a Store: event.New(st.DB()) in main, which cannot import this package.
//	func New(db *pg.DB) *Store { return &Store{db: db, page: db.Prepare(pageSQL)} }
//
//	// pageSQL goes along feed_pkey from the cursor and locks nothing.
//	const pageSQL = `SELECT … FROM … WHERE company_id = $1 AND …`
//
//	func (s *Store) Page(ctx context.Context, company uuid.UUID, after int64) (page []Event, err error) {
//		return page, pg.Wrap("list events", pg.Translate(s.page.Select(ctx, &page, company, after)))
//	}
//
// Statements are constants, or files that are embedded, whose comments name the index and the locks: tests find them by the
// methods that run them, in every package below shared/store. Each method that runs one is listed with the program that
// calls it in store/roles_test.go, as "event.Page"; a place that does not name the company, with its reason in
// store/tenancy_test.go. Prepared statements are made where the struct is, in a composite literal as above. db.Select and
// db.Get read; db.Exec writes in one statement that may be run twice (see Write); db.InTx runs several, and what is run on
// its transaction goes through Translate. Errors other than those of this package (ErrNotFound, ErrUnavailable,
// ErrUnknownOutcome, …, which package store has under the same names) are declared beside the method that returns them.
// Nothing waits for a lock of another transaction without a bound: SET LOCAL lock_timeout (BoundWaitSQL) and Bounded.
package pg
