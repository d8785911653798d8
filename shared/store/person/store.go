// Package person finds what the tables of a company contain about a person, and erases it. Package
// api/internal/privacy decides what is erased, and in which order.
//
// Person holds the identifiers of a person. Find collects them by following addresses, hashes and ids from row to row.
package person

import "email-gateway/shared/store/internal/pg"

// Store has the queries and erasures. Erasures run in small transactions; repeating one changes nothing more.
type Store struct{ db *pg.DB }

// New makes a Store that uses the connections of db.
func New(db *pg.DB) *Store { return &Store{db: db} }
