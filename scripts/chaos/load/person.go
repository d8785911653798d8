package load

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"github.com/google/uuid"
)

const (
	// personSerials is the first serial of the statements about persons.
	personSerials = 10_000_000
	// statementsEach is the number of serials reserved for one person.
	statementsEach = 10
	// eraseEvery: one person of so many is erased. An erasure reads all tables.
	eraseEvery = 75
	// personPause is the pause between two persons.
	personPause = 200 * time.Millisecond
	// maxPersons limits the persons with open requests. Without a limit the requests that an outage delays are
	// repeated faster than a slow machine answers them, and nothing is accepted any more.
	maxPersons = 32
)

// person is a recipient about whom a tenant makes several statements, identified by externalId.
type person struct {
	load   *Load
	id     uuid.UUID // set by the first import
	serial int
	tenant int
	phase  int
}

// describePersons makes statements about persons until offering ends.
func (l *Load) describePersons(ctx, offering context.Context) {
	repeat(offering, personPause, maxPersons, func(n int) {
		p := &person{load: l, serial: personSerials + n*statementsEach, tenant: n % len(l.params.Keys)}
		scenario := scenarios[n%len(scenarios)]
		if n%eraseEvery == eraseEvery/2 {
			scenario = eraseAndReturn
		}
		scenario(ctx, p, rand.New(rand.NewPCG(l.params.Seed, uint64(p.serial))))
	})
}

// scenarios are sequences of statements about one person.
var scenarios = []func(ctx context.Context, p *person, random *rand.Rand){
	// An import with all fields, immediately followed by an email with the externalId only.
	func(ctx context.Context, p *person, _ *rand.Rand) {
		_ = p.importWith(ctx, 0, allFields(p.serial)) && p.emailWith(ctx, 1, Fields{})
	},
	// The reverse order.
	func(ctx context.Context, p *person, _ *rand.Rand) {
		_ = p.emailWith(ctx, 0, Fields{}) && p.importWith(ctx, 1, allFields(p.serial))
	},
	// Both concurrently.
	func(ctx context.Context, p *person, _ *rand.Rand) {
		var both sync.WaitGroup
		both.Go(func() { p.emailWith(ctx, 0, Fields{Nome: fmt.Sprintf("Rosa %d", p.serial)}) })
		p.importWith(ctx, 1, allFields(p.serial))
		both.Wait()
	},
	// Changes of single fields, by imports and emails.
	func(ctx context.Context, p *person, random *rand.Rand) {
		if !p.importWith(ctx, 0, allFields(p.serial)) {
			return
		}
		for n := 1; n <= 3; n++ {
			change := singleField(p.serial + n)[random.IntN(4)]
			if random.IntN(2) == 0 && !p.importWith(ctx, n, change) || !p.emailWith(ctx, n+4, change) {
				return
			}
		}
	},
	// Deleted, with an email in flight.
	func(ctx context.Context, p *person, _ *rand.Rand) {
		_ = p.importWith(ctx, 0, allFields(p.serial)) && p.emailWith(ctx, 1, Fields{}) && p.remove(ctx)
	},
	// Deleted and imported again, with fewer fields.
	func(ctx context.Context, p *person, random *rand.Rand) {
		_ = p.importWith(ctx, 0, allFields(p.serial)) && p.remove(ctx) && p.importWith(ctx, 1, singleField(p.serial + 1)[random.IntN(3)])
	},
	// Deleted, and created again by an email.
	func(ctx context.Context, p *person, _ *rand.Rand) {
		_ = p.importWith(ctx, 0, allFields(p.serial)) && p.emailWith(ctx, 1, Fields{Nome: fmt.Sprintf("Rita %d", p.serial)}) && p.remove(ctx) && p.emailWith(ctx, 2, Fields{})
	},
}

// eraseAndReturn imports a person, erases the person, possibly before the import is applied, and
// imports the person again, with fewer fields.
func eraseAndReturn(ctx context.Context, p *person, random *rand.Rand) {
	_ = p.importWith(ctx, 0, allFields(p.serial)) && p.erase(ctx) && random.IntN(2) == 0 && p.importWith(ctx, 1, singleField(p.serial + 1)[random.IntN(3)])
}

// key is the tenant's.
func (p *person) key() string { return p.load.params.Keys[p.tenant] }

// complete completes the person's n-th statement: each has its own address, by which its row is found.
func (p *person) complete(n int, f Fields) (int, Fields) {
	serial := p.serial + n
	f.ExternalID, f.Email = fmt.Sprintf("ficha-%d", p.serial), Address(serial)
	return serial, f
}

// importWith makes the person's n-th statement by an import, and reports whether it was accepted.
func (p *person) importWith(ctx context.Context, n int, f Fields) bool {
	serial, f := p.complete(n, f)
	body, _ := json.Marshal(f.json()) // maps of strings always can
	name := fmt.Sprintf("ficha-%d", serial)
	got, ok := p.load.retryUntilAccepted(ctx, request{
		method: http.MethodPost, path: "/v1/recipients", key: p.key(), contentType: "application/json", idempotency: name, body: body,
	}, name)
	if !ok {
		return false
	}
	accepted, err := read[struct{ ID uuid.UUID }](got)
	if err != nil || accepted.ID == uuid.Nil {
		p.load.Ledger.addRefusal(fmt.Sprintf("%s: %.200q contains no recipient id", name, got.body))
		return false
	}
	p.id = accepted.ID
	p.load.Ledger.addStatement(Statement{Person: p.id, Phase: p.phase, How: Imported, Fields: f})
	return true
}

// emailWith makes the person's n-th statement by an email, and reports whether it was accepted.
func (p *person) emailWith(ctx context.Context, n int, f Fields) bool {
	serial, f := p.complete(n, f)
	row := p.load.submit(ctx, emailTo(serial, p.key(), f.json(), "Sua ficha", fmt.Sprintf("<p>%d</p>", serial)))
	if row == uuid.Nil {
		return false
	}
	p.load.Ledger.addStatement(Statement{Phase: p.phase, How: Named, Fields: f, Row: row})
	return true
}

// remove deletes the person, and reports whether another statement may follow: after a lost
// response an api may still execute the request later.
func (p *person) remove(ctx context.Context) bool {
	sure := true
	for try := 1; ; try++ {
		got, err := p.load.client.do(ctx, request{method: http.MethodDelete, path: "/v1/recipients/" + p.id.String(), key: p.key()})
		p.load.Ledger.countResponse(got.status)
		switch {
		case err != nil:
			sure = false
		case got.status == http.StatusNoContent:
			p.recordEnd(Deleted, stepDelete)
			return sure
		case !got.retryable():
			p.load.Ledger.addRefusal(fmt.Sprintf("delete recipient %s: %s", p.id, unexpectedResponse(got.status, got.body)))
			return false
		}
		if backoff(ctx, try) != nil {
			p.load.Ledger.addUnanswered("delete of recipient " + p.id.String())
			return false
		}
	}
}

// erase erases the person, and reports whether another statement may follow. It repeats a failed
// erasure, which then completes.
func (p *person) erase(ctx context.Context) bool {
	for try := 1; ; try++ {
		if p.load.params.Erase(ctx, p.tenant, Address(p.serial)) == nil {
			p.recordEnd(Erased, stepErase)
			return try == 1 // a SQL statement of a failed one may still run
		}
		if backoff(ctx, try) != nil {
			p.load.Ledger.addUnanswered("erasure of recipient " + p.id.String())
			return false
		}
	}
}

// recordEnd records the deletion or erasure of the person, which begins a phase.
func (p *person) recordEnd(how, step string) {
	p.phase++
	p.load.Ledger.addStatement(Statement{Person: p.id, Phase: p.phase, How: how, Fields: Fields{ExternalID: fmt.Sprintf("ficha-%d", p.serial)}})
	p.load.Ledger.countStep(step)
}
