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

	"email-gateway/shared/service"
)

const (
	// personSerials is the first serial of the statements about persons.
	personSerials = 10_000_000
	// statementsEach is how many serials one person may use.
	statementsEach = 10
	// eraseEvery: of so many persons one is erased. An erasure goes through all tables.
	eraseEvery = 75
	// personPause lies between two persons.
	personPause = 200 * time.Millisecond
)

// person is somebody about whom a tenant makes several statements, by his externalId.
type person struct {
	load   *Load
	id     uuid.UUID // known from the first import on
	serial int
	tenant int
	phase  int
}

// describe makes statements about persons until offering ends.
func (l *Load) describe(ctx, offering context.Context) {
	random := rand.New(rand.NewPCG(l.params.Seed, 4))
	var describing sync.WaitGroup
	defer describing.Wait()
	for n := 0; service.Pause(offering, personPause) == nil; n++ {
		p := &person{load: l, serial: personSerials + n*statementsEach, tenant: n % len(l.params.Keys)}
		act, dice := acts[n%len(acts)], rand.New(rand.NewPCG(random.Uint64(), 0))
		if n%eraseEvery == eraseEvery/2 {
			act = eraseAndReturn
		}
		describing.Go(func() { act(ctx, p, dice) })
	}
}

// acts are sequences of statements about one person.
var acts = []func(ctx context.Context, p *person, dice *rand.Rand){
	// The import with every field, and at once an email that names the person alone.
	func(ctx context.Context, p *person, _ *rand.Rand) {
		_ = p.bring(ctx, 0, all(p.serial)) && p.name(ctx, 1, Facts{})
	},
	// The other order.
	func(ctx context.Context, p *person, _ *rand.Rand) {
		_ = p.name(ctx, 0, Facts{}) && p.bring(ctx, 1, all(p.serial))
	},
	// Both at the same time.
	func(ctx context.Context, p *person, _ *rand.Rand) {
		var both sync.WaitGroup
		both.Go(func() { p.name(ctx, 0, Facts{Nome: fmt.Sprintf("Rosa %d", p.serial)}) })
		p.bring(ctx, 1, all(p.serial))
		both.Wait()
	},
	// Changes of single fields, by imports and emails.
	func(ctx context.Context, p *person, dice *rand.Rand) {
		if !p.bring(ctx, 0, all(p.serial)) {
			return
		}
		for n := 1; n <= 3; n++ {
			change := single(p.serial + n)[dice.IntN(4)]
			if dice.IntN(2) == 0 && !p.bring(ctx, n, change) || !p.name(ctx, n+4, change) {
				return
			}
		}
	},
	// Deleted, with an email on its way.
	func(ctx context.Context, p *person, _ *rand.Rand) {
		_ = p.bring(ctx, 0, all(p.serial)) && p.name(ctx, 1, Facts{}) && p.remove(ctx)
	},
	// Deleted and imported again, with less.
	func(ctx context.Context, p *person, dice *rand.Rand) {
		_ = p.bring(ctx, 0, all(p.serial)) && p.remove(ctx) && p.bring(ctx, 1, single(p.serial + 1)[dice.IntN(3)])
	},
	// Deleted, and brought back by an email.
	func(ctx context.Context, p *person, _ *rand.Rand) {
		_ = p.bring(ctx, 0, all(p.serial)) && p.name(ctx, 1, Facts{Nome: fmt.Sprintf("Rita %d", p.serial)}) && p.remove(ctx) && p.name(ctx, 2, Facts{})
	},
}

// eraseAndReturn imports a person, who is erased, perhaps before the import was applied, and
// imported again, with less.
func eraseAndReturn(ctx context.Context, p *person, dice *rand.Rand) {
	_ = p.bring(ctx, 0, all(p.serial)) && p.erase(ctx) && dice.IntN(2) == 0 && p.bring(ctx, 1, single(p.serial + 1)[dice.IntN(3)])
}

// key is the tenant's.
func (p *person) key() string { return p.load.params.Keys[p.tenant] }

// about completes the person's n-th statement: each has an address of its own, by which its
// row is found.
func (p *person) about(n int, f Facts) (int, Facts) {
	serial := p.serial + n
	f.ExternalID, f.Email = fmt.Sprintf("ficha-%d", p.serial), Address(serial)
	return serial, f
}

// bring makes the person's n-th statement by an import, and says whether it was accepted.
func (p *person) bring(ctx context.Context, n int, f Facts) bool {
	serial, f := p.about(n, f)
	body, _ := json.Marshal(f.json()) // maps of strings always can
	name := fmt.Sprintf("ficha-%d", serial)
	got, ok := p.load.insist(ctx, request{
		method: http.MethodPost, path: "/v1/recipients", key: p.key(), contentType: "application/json", idempotency: name, body: body,
	}, name)
	if !ok {
		return false
	}
	accepted, err := read[struct{ ID uuid.UUID }](got)
	if err != nil || accepted.ID == uuid.Nil {
		p.load.Book.refuse(fmt.Sprintf("%s: %.200q names no recipient", name, got.body))
		return false
	}
	p.id = accepted.ID
	p.load.Book.state(Statement{Person: p.id, Phase: p.phase, How: Imported, Facts: f})
	return true
}

// name makes the person's n-th statement by an email, and says whether it was accepted.
func (p *person) name(ctx context.Context, n int, f Facts) bool {
	serial, f := p.about(n, f)
	request := map[string]any{
		"to": f.Email, "subject": "Sua ficha", "html": fmt.Sprintf("<p>%d</p>", serial), "recipient": f.json(),
	}
	body, _ := json.Marshal(request) // maps of strings always can
	row := p.load.handOver(ctx, letter{serial: serial, key: p.key(), body: body})
	if row == uuid.Nil {
		return false
	}
	p.load.Book.state(Statement{Phase: p.phase, How: Named, Facts: f, Row: row})
	return true
}

// remove deletes the person, and says whether another statement may follow: after an answer
// that was lost an api may still carry out the request later.
func (p *person) remove(ctx context.Context) bool {
	sure := true
	for try := 1; ; try++ {
		got, err := p.load.client.do(ctx, request{method: http.MethodDelete, path: "/v1/recipients/" + p.id.String(), key: p.key()})
		p.load.Book.answer(got.status)
		switch {
		case err != nil:
			sure = false
		case got.status == http.StatusNoContent:
			p.end(Deleted, stepDelete)
			return sure
		case !repeatable(got.status):
			p.load.Book.refuse(fmt.Sprintf("delete recipient %s: %s", p.id, unexpected(got.status, got.body)))
			return false
		}
		if again(ctx, try) != nil {
			p.load.Book.leave("delete of recipient " + p.id.String())
			return false
		}
	}
}

// erase has the person erased, and says whether another statement may follow. An erasure that
// failed is repeated: it does what is left.
func (p *person) erase(ctx context.Context) bool {
	for try := 1; ; try++ {
		if p.load.params.Erase(ctx, p.tenant, Address(p.serial)) == nil {
			p.end(Erased, stepErase)
			return try == 1 // a statement of one that failed may still run
		}
		if again(ctx, try) != nil {
			p.load.Book.leave("erasure of recipient " + p.id.String())
			return false
		}
	}
}

// end notes the deletion or erasure of the person, with which a phase begins.
func (p *person) end(how, step string) {
	p.phase++
	p.load.Book.state(Statement{Person: p.id, Phase: p.phase, How: how, Facts: Facts{ExternalID: fmt.Sprintf("ficha-%d", p.serial)}})
	p.load.Book.step(step)
}
