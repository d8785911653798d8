// Package person finds and erases the data of a person in the rows of a company. Package
// api/internal/privacy decides what is erased, and in which order.
//
// Person holds the identifiers of a person. Find collects them by following addresses, hashes and ids from row to row.
package person

import "email-gateway/shared/store/internal/pg"

// Store runs the queries and erasures. Erasures run in small transactions and are idempotent.
type Store struct{ db *pg.DB }

// New returns a Store that uses the connections of db.
func New(db *pg.DB) *Store { return &Store{db: db} }
