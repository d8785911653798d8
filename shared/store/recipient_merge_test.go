package store_test

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"
	"pgregory.net/rapid"

	"email-gateway/shared/store/outbox"
	"email-gateway/shared/store/person"
	"email-gateway/shared/store/recipient"
	"email-gateway/shared/store/storetest"
)

// update has the fields of a person in an import or an email; "" = not given.
type update struct {
	nome, razaoSocial, hash, number, address string

	id            uuid.UUID // the outbox row's
	byEmail, byID bool      // byID: an email that names a recipientId
}

// people are the updates about one person of a company.
type people struct {
	tb         testing.TB
	d          storetest.Database
	company    uuid.UUID
	externalID string
}

func (p people) id() uuid.UUID { return recipient.ID(p.company, p.externalID, "", "") }

func (p people) recipient(s update) recipient.Recipient {
	r := recipient.Recipient{ID: p.id(), CPFCNPJHash: s.hash, RazaoSocial: s.razaoSocial, Nome: s.nome}
	if !s.byID {
		r.ExternalID, r.Email = p.externalID, s.address
	}
	return r
}

// accept writes the update's outbox row.
func (p people) accept(s update) update {
	p.tb.Helper()
	r := recipient.NewRecipient{Recipient: p.recipient(s)}
	if s.number != "" {
		r.CPFCNPJ = []byte(s.number)
	}
	if s.byEmail {
		s.id = p.d.Accept(p.tb, p.company, func(e *outbox.NewEmail) { e.Job.To, e.CPFCNPJ = s.address, r.CPFCNPJ })
	} else {
		s.id = storetest.Intake(p.tb, p.d, p.company, r)[0]
	}
	return s
}

// arrive applies updates, the imports in one batch and the emails in another.
func (p people) arrive(some ...update) {
	p.tb.Helper()
	var imports []uuid.UUID
	var claims []outbox.Transition
	for _, s := range some {
		if !s.byEmail {
			imports = append(imports, s.id)
			continue
		}
		claim, r := storetest.ClaimOf(p.company, s.id, uuid.New(), ""), p.recipient(s)
		claim.Recipient = &r
		claims = append(claims, claim)
	}
	storetest.Upsert(p.tb, p.d, imports...)
	if len(claims) == 0 {
		return
	}
	done, err := p.d.Store.AdvanceAll(p.tb.Context(), p.company, claims)
	if err != nil || slices.ContainsFunc(done, func(a outbox.Advanced) bool { return !a.Applied }) {
		p.tb.Errorf("%+v, %v", done, err)
	}
}

// row is the recipient without the encrypted number, and that number.
func (p people) row() (fields, number string) {
	p.tb.Helper()
	fields = ask[string](p.tb, p.d, `SELECT concat_ws('|', external_id, left(cpf_cnpj_hash, 1), razao_social, nome, email, deleted_at IS NULL) FROM recipients WHERE id = $1`, p.id())
	return fields, ask[string](p.tb, p.d, `SELECT coalesce(convert_from(cpf_cnpj_enc, 'UTF8'), '') FROM recipients WHERE id = $1`, p.id())
}

// want compares the row with the updates that count, in the order of their acceptance.
func (p people) want(trace string, updates []update) {
	p.tb.Helper()
	fields, number := p.row()
	if len(updates) == 0 {
		if !strings.HasSuffix(fields, "|f") || number != "" {
			p.tb.Errorf("%s: %s|%s, want a deleted person", trace, fields, number)
		}
		return
	}
	var s update
	var externalID string
	var numbers []string // that belong to the hash
	needed := false      // one of them came since the hash changed
	for _, next := range updates {
		s.nome, s.razaoSocial = cmp.Or(next.nome, s.nome), cmp.Or(next.razaoSocial, s.razaoSocial)
		if !next.byID {
			s.address, externalID = next.address, p.externalID
		}
		if next.hash != "" && next.hash != s.hash {
			s.hash, needed = next.hash, false
		}
		needed = needed || next.number != ""
	}
	for _, any := range updates {
		if any.number != "" && any.hash == s.hash {
			numbers = append(numbers, any.number)
		}
	}
	parts := []string{externalID, s.hash[:min(len(s.hash), 1)], s.razaoSocial, s.nome, cmp.Or(s.address, toByID), "t"}
	want := strings.Join(slices.DeleteFunc(parts, func(part string) bool { return part == "" }), "|")
	if fields != want || (number == "" && needed) || (number != "" && !slices.Contains(numbers, number)) {
		p.tb.Errorf("%s: %s and the number %q, want %s and one of %v (needed: %v)", trace, fields, number, want, numbers, needed)
	}
}

// toByID is where emails go that name a recipientId.
const toByID = "named@example.com"

// drawUpdate returns the n-th update.
func drawUpdate(rt *rapid.T, n int) update {
	s := update{byEmail: rapid.Bool().Draw(rt, "by email"), address: fmt.Sprintf("a%d@example.com", n)}
	if rapid.Bool().Draw(rt, "nome") {
		s.nome = fmt.Sprint("N", n)
	}
	if rapid.Bool().Draw(rt, "razao") {
		s.razaoSocial = fmt.Sprint("R", n)
	}
	if digit := rapid.SampledFrom([]string{"", "a", "a", "b"}).Draw(rt, "hash"); digit != "" {
		s.hash = storetest.HashOf(digit[0])
		if rapid.Bool().Draw(rt, "number") {
			s.number = fmt.Sprint(digit, n)
		}
	}
	if s.byEmail && s.nome != "" && rapid.Bool().Draw(rt, "by id") {
		s.byID, s.address = true, toByID
	}
	return s
}

// Statements in any order of arrival, alone and in batches, with deletions and erasures
// between them: each field has the value of the newest update, and an update that a deletion has voided
// stays void.
func TestRecipients_AnyOrderOfArrival(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company, persons := d.Company(t), 0
	rapid.Check(t, func(rt *rapid.T) {
		persons++
		p := people{t, d, company, fmt.Sprint("C-", persons)}
		var accepted, onTheirWay []update
		counts := 0 // from this update on: the others were accepted before the last deletion
		var trace strings.Builder
		for range rapid.IntRange(1, 14).Draw(rt, "steps") {
			switch step := rapid.IntRange(0, 11).Draw(rt, "step"); {
			case step < 5:
				s := p.accept(drawUpdate(rt, len(accepted)))
				accepted, onTheirWay = append(accepted, s), append(onTheirWay, s)
				fmt.Fprintf(&trace, "accept %+v; ", s)
			case step < 10 && len(onTheirWay) > 0:
				onTheirWay = rapid.Permutation(onTheirWay).Draw(rt, "order")
				n := rapid.IntRange(1, len(onTheirWay)).Draw(rt, "together")
				p.arrive(onTheirWay[:n]...)
				onTheirWay = onTheirWay[n:]
				fmt.Fprintf(&trace, "%d arrive; ", n)
			case step == 10:
				if d.Store.DeleteRecipient(t.Context(), company, p.id()) == nil {
					counts = len(accepted)
					fmt.Fprint(&trace, "delete; ")
				}
			case step == 11:
				erased, err := person.New(d.Store.DB()).EraseRecipients(t.Context(), company, uuid.Must(uuid.NewV7()), []uuid.UUID{p.id()}, true)
				if err != nil {
					t.Error(err)
				}
				if len(erased) > 0 {
					counts = len(accepted)
					fmt.Fprint(&trace, "erase; ")
				}
			}
		}
		for _, s := range onTheirWay {
			p.arrive(s)
		}
		if len(accepted) > 0 {
			p.want(trace.String(), accepted[counts:])
		}
		if t.Failed() {
			rt.FailNow()
		}
	})
	if n := ask[int](t, d, `SELECT count(*) FROM email_outbox WHERE cpf_cnpj_enc IS NOT NULL`); n != 0 {
		t.Errorf("%d outbox rows hold a number still", n)
	}
}

// A batch holds an email from before a deletion, and one from after it that names the recipient by id: the person of the
// second one has nothing of the first one, not even its address.
func TestRecipients_DeletedBetweenTwoOfABatch(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	p := people{t, d, d.Company(t), "C-1"}
	p.arrive(p.accept(update{nome: "N0", address: "a0@example.com"}))
	before := p.accept(update{byEmail: true, nome: "N1", razaoSocial: "R1", address: "a1@example.com"})
	if err := d.Store.DeleteRecipient(t.Context(), p.company, p.id()); err != nil {
		t.Fatal(err)
	}
	after := p.accept(update{byEmail: true, byID: true, nome: "N2", address: toByID})
	p.arrive(before, after)
	p.want("a batch from before and after a deletion", []update{after})
}

// A program of the previous release writes fields and intake_id, but not the columns …_by: its values are as new as
// intake_id, and empty fields can be filled.
func TestRecipients_WrittenByThePreviousRelease(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	p := people{t, d, d.Company(t), "C-1"}
	first := p.accept(update{nome: "N0", address: "a0@example.com"})
	late := p.accept(update{nome: "N1", razaoSocial: "R1", hash: storetest.HashOf('a'), number: "one", address: "a1@example.com"})
	p.arrive(first)
	older := uuid.Must(uuid.NewV7())
	run(t, d, `UPDATE recipients SET nome = 'N2', email = 'a2@example.com', intake_id = $1`, older)
	newer := p.accept(update{nome: "N3", address: "a3@example.com"})
	p.arrive(late)
	if fields, number := p.row(); fields != "C-1|a|R1|N2|a2@example.com|t" || number != "one" {
		t.Errorf("after the late one: %s, %s", fields, number)
	}
	p.arrive(newer)
	if fields, _ := p.row(); fields != "C-1|a|R1|N3|a3@example.com|t" {
		t.Errorf("after the newer one: %s", fields)
	}

	// Its deletion stores only the time.
	waiting := p.accept(update{byEmail: true, nome: "N4", address: "a4@example.com"})
	waitingToo := p.accept(update{nome: "N4", address: "a4@example.com"})
	run(t, d, `UPDATE recipients SET deleted_at = now() + interval '1 ms', cpf_cnpj_enc = NULL`) // ids and times are compared by the millisecond
	p.arrive(waiting)
	if fields, _ := p.row(); fields != "C-1|a|R1|N3|a3@example.com|f" {
		t.Errorf("after the deletion: %s", fields)
	}
	storetest.WaitFor(t, d, `SELECT date_trunc('milliseconds', deleted_at) < date_trunc('milliseconds', now()) FROM recipients`)
	p.arrive(p.accept(update{address: "a5@example.com"}))
	if fields, _ := p.row(); fields != "C-1|a5@example.com|t" {
		t.Errorf("the new person: %s", fields)
	}
	p.arrive(waitingToo)
	if fields, _ := p.row(); fields != "C-1|a5@example.com|t" {
		t.Errorf("an update that the deletion has voided was written: %s", fields)
	}
}

// An update that changes nothing is not written.
func TestRecipients_NothingNew(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	p := people{t, d, d.Company(t), "C-1"}
	older := p.accept(update{nome: "N0", address: "a0@example.com"})
	newer := p.accept(update{byEmail: true, nome: "N1", address: "a1@example.com"})
	p.arrive(newer)
	version := func() string { return ask[string](t, d, `SELECT xmin::text FROM recipients`) }
	before := version()
	p.arrive(older)
	if after := version(); after != before {
		t.Error("an older update without anything new was written")
	}
}

// An import that the database refuses is a dead letter, also if an email has written
// something newer about the person.
func TestDeadLetterImport_AfterANewerEmail(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	p := people{t, d, d.Company(t), "C-1"}
	run(t, d, `ALTER TABLE recipients ADD CONSTRAINT poison CHECK (nome <> 'poison')`)
	refused := p.accept(update{nome: "poison", address: "a0@example.com"})
	p.arrive(p.accept(update{byEmail: true, address: "a1@example.com"}))
	if err := d.Store.DeadLetterImport(t.Context(), refused.id, "REFUSED", "poison", 4); err != nil {
		t.Fatal(err)
	}
	if n := ask[int](t, d, `SELECT count(*) FROM dead_letters WHERE outbox_id = $1`, refused.id); n != 1 {
		t.Errorf("%d dead letters", n)
	}
}
