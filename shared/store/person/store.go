// Package person finds and erases the data of a person in the rows of a company. Package
// api/internal/privacy decides what is erased, and in which order.
//
// Person holds the identifiers of a person. Find collects them by following addresses, hashes and ids from row to row,
// by the same rules for a search by address and by number.
//
// An id joins the rows that have it, unless several people share it. Of its rows, those that have the same address or the
// same number are grouped. People share the id if
//   - two groups have a number, or
//   - it is an external id, and two groups used it at the same time: in one request or mailing, or alternately. It is
//     then a code that several contacts have, such as the one of the company where they work. One person's addresses follow
//     one another: after the first use of the new address the former one is not used any more.
//
// A shared id is reported and not followed, and says nothing about whose a row is: the row belongs to those whose address
// or number it has. The rule cannot distinguish a person with a new address from a contact who replaced another one under
// the same code, if neither has a number: gatewayctl therefore lists the addresses before it erases.
package person

import "email-gateway/shared/store/internal/pg"

// Store runs the queries and erasures. Erasures run in small transactions and are idempotent.
type Store struct{ db *pg.DB }

// New returns a Store that uses the connections of db.
func New(db *pg.DB) *Store { return &Store{db: db} }
