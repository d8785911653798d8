// Package person finds and erases the data of a person in the rows of a company. Package
// api/internal/privacy decides what is erased, and in which order.
//
// Person holds the identifiers of a person. Find collects them by following addresses, hashes and ids from row to row.
//
// An identifier (an external id, a recipient id, a number) joins the rows that have it, unless several people share it.
// People share it if
//   - its rows have different numbers, also if these have an address in common, or
//   - two of its addresses, which no other identifier joins, were used at the same time: in one request or mailing, or
//     alternately. It is then a code that several contacts have, such as the CNPJ of the company where they work. One
//     person's addresses follow one another: after the first use of the new address the former one is not used any more. Or
//   - it is a number, and two of its addresses, which no other identifier joins, have different external ids: the tenant
//     distinguishes them.
//
// In a search by number the number is the person's: it joins all of its rows, and other numbers join theirs.
//
// Emails and imports with one id are merged into one recipient. Its address and its number may come from different ones:
// then they do not show that the address belongs to the person with the number.
//
// A shared identifier is reported and not followed. A row that has it is the person's if it has the person's address, number
// or another id. The rule cannot distinguish a person with a new address from a contact who replaced another one under the
// same code: gatewayctl therefore lists the addresses before it erases.
package person

import "email-gateway/shared/store/internal/pg"

// Store runs the queries and erasures. Erasures run in small transactions and are idempotent.
type Store struct{ db *pg.DB }

// New returns a Store that uses the connections of db.
func New(db *pg.DB) *Store { return &Store{db: db} }
