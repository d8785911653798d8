package judge

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/google/uuid"
	"github.com/lib/pq"

	"email-gateway/scripts/chaos/load"
)

// recorded is a statement about a person with the id of its outbox row, which is when it was
// accepted.
type recorded struct {
	load.Statement
	id uuid.UUID
}

// ends says that what was accepted before is void.
func (s recorded) ends() bool { return s.How == load.Deleted || s.How == load.Erased }

// portrait is a recipient as the gateway should know him.
type portrait struct {
	load.Facts
	deleted bool
}

// portraitOf is what statements add up to, whatever order they were applied in: per field the
// newest wins, an older one fills what is empty, and a deletion takes all that was accepted
// before it. The encrypted number belongs to its hash.
func portraitOf(statements []recorded) portrait {
	slices.SortFunc(statements, func(a, b recorded) int {
		return cmp.Or(cmp.Compare(a.Phase, b.Phase), bytes.Compare(a.id[:], b.id[:])) // a deletion has no row, and begins its phase
	})
	var p portrait
	for _, s := range statements {
		if s.ends() {
			p = portrait{deleted: true}
			continue
		}
		p.deleted = false
		p.TaxID = s.TaxID || p.TaxID && (s.TaxIDHash == "" || s.TaxIDHash == p.TaxIDHash)
		p.ExternalID, p.TaxIDHash = cmp.Or(s.ExternalID, p.ExternalID), cmp.Or(s.TaxIDHash, p.TaxIDHash)
		p.RazaoSocial, p.Nome, p.Email = cmp.Or(s.RazaoSocial, p.RazaoSocial), cmp.Or(s.Nome, p.Nome), cmp.Or(s.Email, p.Email)
	}
	return p
}

// differences lists the fields in which the gateway's recipient is not what was accepted. Of a
// deleted one nothing is looked at but that the number is gone: emails may name its row.
func (p portrait) differences(got portrait) []string {
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

const recipientsSQL = `
SELECT id, coalesce(external_id, ''), coalesce(cpf_cnpj_hash, ''), cpf_cnpj_enc IS NOT NULL, coalesce(razao_social, ''), coalesce(nome, ''), email,
       deleted_at IS NOT NULL
FROM recipients WHERE id = ANY ($1::uuid[])`

// tryRecipients compares each person with what was accepted about him.
func (j *Judge) tryRecipients(ctx context.Context) error {
	people, err := j.people(ctx)
	if err != nil {
		return err
	}
	ids := make([]string, 0, len(people))
	for id := range people {
		ids = append(ids, id.String())
	}
	found := make(map[uuid.UUID]portrait, len(people))
	err = j.each(ctx, recipientsSQL, []any{pq.Array(ids)}, func(scan func(...any) error) error {
		var id uuid.UUID
		var p portrait
		err := scan(&id, &p.ExternalID, &p.TaxIDHash, &p.TaxID, &p.RazaoSocial, &p.Nome, &p.Email, &p.deleted)
		found[id] = p
		return err
	})
	if err != nil {
		return fmt.Errorf("read recipients: %w", err)
	}
	for id, statements := range people {
		j.tryPerson(id, statements, found)
	}
	j.Counts.Recipients, j.Counts.Statements = len(people), len(j.notes.Statements)
	return nil
}

func (j *Judge) tryPerson(id uuid.UUID, statements []recorded, found map[uuid.UUID]portrait) {
	want := portraitOf(statements)
	got, there := found[id]
	if !there && want.deleted && slices.ContainsFunc(statements, func(s recorded) bool { return s.How == load.Erased }) {
		return // an erasure may leave no row
	}
	if !there {
		j.Find(Lost, "recipient %s is not there; accepted: %s", id, ways(statements))
		return
	}
	if wrong := want.differences(got); len(wrong) > 0 {
		j.Find(Forgotten, "recipient %s: %s; accepted, oldest first: %s", id, strings.Join(wrong, "; "), ways(statements))
	}
}

func ways(statements []recorded) string {
	list := make([]string, len(statements))
	for i, s := range statements {
		list[i] = s.How
	}
	return strings.Join(list, ", ")
}

// people are the statements by person, each with its row.
func (j *Judge) people(ctx context.Context) (map[uuid.UUID][]recorded, error) {
	imports, err := j.rowsByAddress(ctx, importsSQL)
	if err != nil {
		return nil, err
	}
	var addresses []string
	for _, s := range j.notes.Statements {
		if s.How == load.Listed {
			addresses = append(addresses, s.Email)
		}
	}
	entries, err := j.rowsByAddress(ctx, listedSQL, pq.Array(addresses))
	if err != nil {
		return nil, err
	}
	return j.group(imports, entries), nil
}

// group puts the statements about one person together. Only an import is answered with the
// person's id; the other statements name him by externalId, or by his address alone.
func (j *Judge) group(imports, entries map[string][]uuid.UUID) map[uuid.UUID][]recorded {
	key := func(s load.Statement) string { return cmp.Or(s.ExternalID, s.Email) }
	ids := make(map[string]uuid.UUID)
	for _, s := range j.notes.Statements {
		if s.How == load.Imported {
			ids[key(s)] = s.Person
		}
	}
	erased := make(map[string]int) // the phase that began with it
	for _, s := range j.notes.Statements {
		if s.How == load.Erased {
			erased[key(s)] = s.Phase
		}
	}
	people := make(map[uuid.UUID][]recorded)
	for _, s := range j.notes.Statements {
		if s.Phase < erased[key(s)] {
			continue // its row is gone
		}
		person, known := ids[key(s)]
		if !known {
			continue // its import was never answered, which is found as such
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
			j.Find(Lost, "%s of %s was accepted, and there is no row", s.How, s.Email)
			continue
		case 1:
		default:
			j.Find(TwoRows, "one %s of %s became %d rows", s.How, s.Email, len(rows))
		}
		people[person] = append(people[person], recorded{s, rows[0]})
	}
	return people
}

func (j *Judge) rowsByAddress(ctx context.Context, query string, args ...any) (map[string][]uuid.UUID, error) {
	rows := make(map[string][]uuid.UUID)
	err := j.each(ctx, query, args, func(scan func(...any) error) error {
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

// each calls read for each row of the query's result.
func (j *Judge) each(ctx context.Context, query string, args []any, read func(scan func(...any) error) error) error {
	rows, err := j.stage.Database.QueryContext(ctx, query, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := read(rows.Scan); err != nil {
			return err
		}
	}
	return rows.Err()
}
