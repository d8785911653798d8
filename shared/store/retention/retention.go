// Package retention deletes data older than its retention: rows of the outbox, bodies of emails and mailings, logs and their
// partitions, CPFs and CNPJs, and deleted recipients. The ages are parameters; a company's own ages come from
// company_retention.
//
// Most deletions are scans along a primary key, whose position is in retention_walks: see Store.scan.
package retention

import "email-gateway/shared/store/internal/pg"

// Store runs the deletions. Any number of processes may run them at once: each skips rows that another one has locked.
type Store struct{ db *pg.DB }

// New returns a Store that uses the connections of db.
func New(db *pg.DB) *Store { return &Store{db: db} }
