package dispatcher

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/uuid"
	"pgregory.net/rapid"
)

// lanesOf returns lanes as a schedule does: counts[i] lanes for company i.
func lanesOf(counts ...int) (live []liveLane) {
	for i, n := range counts {
		for range n {
			live = append(live, liveLane{id: int64(len(live) + 1), company: uuid.UUID{byte(i / 256), byte(i % 256), 1}})
		}
	}
	return live
}

// Whatever the room in each round, no company gets two turns ahead of another, no lane two ahead of
// another lane of its company, and no round takes more than its room.
func TestTurns_NoStarvation(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		live := lanesOf(rapid.SliceOfN(rapid.IntRange(1, 9), 1, 40).Draw(t, "companies")...)
		rooms := rapid.SliceOfN(rapid.IntRange(1, 100), 1, 50).Draw(t, "rooms")
		var turn roundRobin
		companies := make(map[uuid.UUID]int)
		for _, room := range rooms {
			counts, most := make(map[uuid.UUID]bool), 0
			for _, v := range turn.share(live, room) {
				counts[v.company] = true
				if most += v.limit; v.limit < 1 {
					t.Fatalf("a lane takes part without a row")
				}
			}
			if most > room {
				t.Fatalf("%d rows where there is room for %d", most, room)
			}
			for company := range counts {
				companies[company]++
			}
			least, greatest := len(rooms), 0
			for _, l := range live {
				least, greatest = min(least, companies[l.company]), max(greatest, companies[l.company])
			}
			if greatest-least > 1 {
				t.Fatalf("after a round for %d: one company had %d turns, another %d", room, greatest, least)
			}
		}
	})
}

// A company with 100 mailings adds no more than one with a single mailing, and each of its mailings
// gets a turn.
func TestTurns_ByCompany(t *testing.T) {
	t.Parallel()
	for _, room := range []int{1, 2, 7, 60, 1000} {
		t.Run(fmt.Sprint(room), func(t *testing.T) {
			t.Parallel()
			var turn roundRobin
			live, rows, visits := lanesOf(100, 1), make(map[uuid.UUID]int), make(map[int64]int)
			for range 200 {
				for _, v := range turn.share(live, room) {
					rows[v.company] += v.limit
					visits[v.id]++
				}
			}
			many, one := rows[live[0].company], rows[live[100].company]
			if many > one || 4*many < one {
				t.Errorf("the company with 100 mailings added %d, the one with a single mailing %d", many, one)
			}
			for _, l := range live {
				if visits[l.id] == 0 {
					t.Fatalf("lane %d had no turn", l.id)
				}
			}
		})
	}
}

// A company whose lanes were empty goes before thousands that wait, however many lanes they have.
func TestTurns_IdleCompanyGoesFirst(t *testing.T) {
	t.Parallel()
	counts := make([]int, 5000)
	for i := range counts {
		counts[i] = 2
	}
	busy := lanesOf(counts...)
	for _, several := range []bool{false, true} {
		var turn roundRobin
		for range 5 { // each of them has had a turn then
			charged := make(map[uuid.UUID]int)
			for _, v := range turn.share(busy, 1000) {
				charged[v.company] += v.limit
			}
			turn.addRecipients(several, charged)
		}
		quiet := liveLane{id: 99_999, company: uuid.UUID{255}}
		if first := turn.share(append(busy, quiet), 1000); first[0].id != quiet.id {
			t.Errorf("several recipients %t: the first is %v", several, first[0])
		}
	}
}

// While emails have several recipients, companies take turns by recipients: a company with one each
// adds eleven emails for each one of a company with eleven.
func TestTurns_ByRecipients(t *testing.T) {
	t.Parallel()
	var turn roundRobin
	live := lanesOf(1, 1)
	turn.addRecipients(true, map[uuid.UUID]int{live[0].company: 11})
	count := map[int64]int{}
	for range 120 {
		v := turn.share(live, 1)[0]
		count[v.id] += v.limit
		turn.addRecipients(true, map[uuid.UUID]int{v.company: map[int64]int{1: 11, 2: 1}[v.id]})
	}
	if count[1] < 9 || count[1] > 11 {
		t.Errorf("%v turns", count)
	}
	turn.addRecipients(false, nil)
	count = map[int64]int{}
	for range 10 {
		count[turn.share(live, 1)[0].id]++
	}
	if count[1] != 5 {
		t.Errorf("with one recipient each: %v turns", count)
	}
}

// Companies that are served and return with new rows do not go before those that wait.
func TestTurns_ReturningCompaniesDoNotOvertake(t *testing.T) {
	t.Parallel()
	const companies, room = 30, 10
	var all roundRobin
	served := make(map[int64]int)
	serve := func(live []liveLane, room int) (rest []liveLane) {
		for _, v := range all.share(live, room) {
			served[v.id]++
			live = slices.DeleteFunc(live, func(l liveLane) bool { return l.id == v.id })
		}
		return live
	}
	for range companies / room {
		var live []liveLane
		for id := range int64(companies) { // all have rows again
			live = append(live, liveLane{id: id, company: uuid.UUID{byte(id)}})
		}
		live = serve(live, room-1)
		serve(live, 1) // those that were served have none until the next listing
	}
	for id := range int64(companies) {
		if served[id] == 0 {
			t.Errorf("company %d was never served: %v", id, served)
		}
	}
}
