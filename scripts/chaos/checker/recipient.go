package checker

import (
	"bytes"
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"

	"github.com/google/uuid"
	"github.com/lib/pq"

	"email-gateway/scripts/chaos/load"
)

// storedStatement is a statement about a person with the id of its outbox row, which contains the time of
// acceptance.
type storedStatement struct {
	load.Statement
	id uuid.UUID
}

// deletes reports whether the statement invalidates all earlier ones.
func (s storedStatement) deletes() bool { return s.How == load.Deleted || s.How == load.Erased }

// recipientState is the state of a recipient.
type recipientState struct {
	load.Fields
	deleted bool
}

// expectedState returns the recipient that the statements yield in any order of application: per field
// the newest wins, an older one fills empty fields, and a deletion removes all data that were
// accepted before it. The encrypted number belongs to its hash.
func expectedState(statements []storedStatement) recipientState {
	slices.SortFunc(statements, func(a, b storedStatement) int {
		return cmp.Or(cmp.Compare(a.Phase, b.Phase), bytes.Compare(a.id[:], b.id[:])) // a deletion has no row, and is the first statement of its phase
	})
	var p recipientState
	for _, s := range statements {
		if s.deletes() {
			p = recipientState{deleted: true}
			continue
		}
		p.deleted = false
		p.TaxID = s.TaxID || p.TaxID && (s.TaxIDHash == "" || s.TaxIDHash == p.TaxIDHash)
		p.ExternalID, p.TaxIDHash = cmp.Or(s.ExternalID, p.ExternalID), cmp.Or(s.TaxIDHash, p.TaxIDHash)
		p.RazaoSocial, p.Nome, p.Email = cmp.Or(s.RazaoSocial, p.RazaoSocial), cmp.Or(s.Nome, p.Nome), cmp.Or(s.Email, p.Email)
	}
	return p
}

// differences lists the fields in which the gateway's recipient differs. Of a deleted one it only
// checks that the number is deleted: emails may refer to its row.
func (p recipientState) differences(got recipientState) []string {
	var list []string
	differ := func(field string, got, want any) {
		if got != want {
			list = append(list, fmt.Sprintf("%s %v, want %v", field, got, want))
		}
	}
	differ("deleted", got.deleted, p.deleted)
	differ("encrypted CPF", got.TaxID, p.TaxID)
	if p.deleted {
		return list
	}
	for _, field := range []struct{ name, got, want string }{
		{"externalId", got.ExternalID, p.ExternalID},
		{"cpfCnpjHash", got.TaxIDHash, p.TaxIDHash},
		{"razaoSocial", got.RazaoSocial, p.RazaoSocial},
		{"nome", got.Nome, p.Nome},
		{"email", got.Email, p.Email},
	} {
		differ(field.name, fmt.Sprintf("%q", field.got), fmt.Sprintf("%q", field.want))
	}
	return list
}

const importsSQL = `SELECT id, payload ->> 'email' FROM email_outbox WHERE target = 'recipients.upsert'`

const listedSQL = `SELECT id, email FROM mailing_entries WHERE email = ANY ($1)`

// unclaimedSQL finds emails that reached a final state before a worker claimed them. Only a claim writes the recipient.
const unclaimedSQL = `
SELECT id FROM email_outbox o
WHERE target = 'email:send' AND status IN ('EXPIRED', 'CANCELLED') AND NOT EXISTS (SELECT FROM email_events e WHERE e.email_log_id = o.id AND e.type = 'RECEIVED')`

const recipientsSQL = `
SELECT id, coalesce(external_id, ''), coalesce(cpf_cnpj_hash, ''), cpf_cnpj_enc IS NOT NULL, coalesce(razao_social, ''), coalesce(nome, ''), email,
       deleted_at IS NOT NULL
FROM recipients WHERE id = ANY ($1::uuid[])`

// checkRecipients compares each recipient with the accepted statements.
func (c *Checker) checkRecipients(ctx context.Context) (err error) {
	check := recipientCheck{c.Findings, c.cluster.Database, c.records.Statements}
	c.Counts.Statements = len(c.records.Statements)
	c.Counts.Recipients, err = check.run(ctx)
	return err
}

// recipientCheck compares the recipients in Postgres with the statements that the apis accepted.
type recipientCheck struct {
	findings   *Findings
	database   *sql.DB
	statements []load.Statement
}

// run returns the number of recipients.
func (c recipientCheck) run(ctx context.Context) (int, error) {
	people, err := c.people(ctx)
	if err != nil {
		return 0, err
	}
	ids := make([]string, 0, len(people))
	for id := range people {
		ids = append(ids, id.String())
	}
	found := make(map[uuid.UUID]recipientState, len(people))
	err = each(ctx, c.database, recipientsSQL, []any{pq.Array(ids)}, func(scan func(...any) error) error {
		var id uuid.UUID
		var p recipientState
		err := scan(&id, &p.ExternalID, &p.TaxIDHash, &p.TaxID, &p.RazaoSocial, &p.Nome, &p.Email, &p.deleted)
		found[id] = p
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("read recipients: %w", err)
	}
	for id, statements := range people {
		c.checkPerson(id, statements, found)
	}
	return len(people), nil
}

func (c recipientCheck) checkPerson(id uuid.UUID, statements []storedStatement, found map[uuid.UUID]recipientState) {
	want := expectedState(statements)
	got, there := found[id]
	if !there && want.deleted && slices.ContainsFunc(statements, func(s storedStatement) bool { return s.How == load.Erased }) {
		return // an erasure may leave no row
	}
	if !there {
		c.findings.Add(Lost, "recipient %s does not exist; accepted: %s", id, kindsOf(statements))
		return
	}
	if wrong := want.differences(got); len(wrong) > 0 {
		c.findings.Add(RecipientMismatch, "recipient %s: %s; accepted, oldest first: %s", id, strings.Join(wrong, "; "), kindsOf(statements))
	}
}

func kindsOf(statements []storedStatement) string {
	list := make([]string, len(statements))
	for i, s := range statements {
		list[i] = s.How
	}
	return strings.Join(list, ", ")
}

// people returns the statements by person, each with its row.
func (c recipientCheck) people(ctx context.Context) (map[uuid.UUID][]storedStatement, error) {
	imports, err := c.rowsByAddress(ctx, importsSQL)
	if err != nil {
		return nil, err
	}
	var addresses []string
	for _, s := range c.statements {
		if s.How == load.Listed {
			addresses = append(addresses, s.Email)
		}
	}
	entries, err := c.rowsByAddress(ctx, listedSQL, pq.Array(addresses))
	if err != nil {
		return nil, err
	}
	unclaimed := make(map[uuid.UUID]bool)
	err = each(ctx, c.database, unclaimedSQL, nil, func(scan func(...any) error) error {
		var id uuid.UUID
		err := scan(&id)
		unclaimed[id] = true
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read unclaimed emails: %w", err)
	}
	statements := slices.DeleteFunc(slices.Clone(c.statements), func(s load.Statement) bool { return s.How == load.Named && unclaimed[s.Row] })
	return c.group(statements, imports, entries), nil
}

// group groups the statements by person. Only the response to an import contains the person's id;
// the other statements identify the person by externalId, or by the address only.
func (c recipientCheck) group(statements []load.Statement, imports, entries map[string][]uuid.UUID) map[uuid.UUID][]storedStatement {
	key := func(s load.Statement) string { return cmp.Or(s.ExternalID, s.Email) }
	ids := make(map[string]uuid.UUID)
	for _, s := range statements {
		if s.How == load.Imported {
			ids[key(s)] = s.Person
		}
	}
	erased := make(map[string]int) // the phase that begins with the erasure
	for _, s := range statements {
		if s.How == load.Erased {
			erased[key(s)] = s.Phase
		}
	}
	people := make(map[uuid.UUID][]storedStatement)
	for _, s := range statements {
		if s.Phase < erased[key(s)] {
			continue // its row is deleted
		}
		person, known := ids[key(s)]
		if !known {
			continue // its import got no response, which is another finding
		}
		rows := []uuid.UUID{s.Row}
		switch s.How {
		case load.Imported:
			rows = imports[s.Email]
		case load.Listed:
			rows = entries[s.Email]
		}
		switch len(rows) {
		case 0:
			c.findings.Add(Lost, "%s of %s was accepted, but there is no row", s.How, s.Email)
			continue
		case 1:
		default:
			c.findings.Add(TwoRows, "one %s of %s became %d rows", s.How, s.Email, len(rows))
		}
		people[person] = append(people[person], storedStatement{s, rows[0]})
	}
	return people
}

func (c recipientCheck) rowsByAddress(ctx context.Context, query string, args ...any) (map[string][]uuid.UUID, error) {
	rows := make(map[string][]uuid.UUID)
	err := each(ctx, c.database, query, args, func(scan func(...any) error) error {
		var id uuid.UUID
		var address string
		err := scan(&id, &address)
		rows[address] = append(rows[address], id)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read statements: %w", err)
	}
	return rows, nil
}
