package breaker

import (
	"strconv"
	"testing"
	"time"

	"github.com/google/uuid"
)

func TestRefusals(t *testing.T) {
	t.Parallel()
	begin := time.Now()
	at := func(seconds int) time.Time { return begin.Add(time.Duration(seconds) * time.Second) }
	call := func(sender string, began int) Call { return Call{Email: uuid.New(), Sender: sender, Began: at(began)} }
	var r refusals
	expect := func(what string, c Call, now int, want bool) {
		t.Helper()
		if got := r.concernAccount(c, at(now)); got != want {
			t.Errorf("%s: concerns the account %v, want %v", what, got, want)
		}
	}
	expect("the first", call("a@x.example", 0), 1, true)
	expect("the same sender, nothing accepted meanwhile", call("a@x.example", 2), 3, true)
	r.answered(call("b@y.example", 0)) // in flight at the first refusal: the account may have been closed since
	expect("after a call that began earlier", call("a@x.example", 4), 5, true)
	r.answered(call("b@y.example", 6))
	expect("after a call that began later", call("a@x.example", 7), 8, false)
	expect("another address of the domain", call("b@x.example", 7), 8, false)
	expect("another sender", call("c@z.example", 7), 8, true)
	r.answered(call("b@x.example", 9))
	expect("an address whose domain works", call("a@x.example", 10), 11, false)
	r.answered(call("a@x.example", 12))
	expect("after one of its own", call("a@x.example", 13), 14, true)
	r.answered(call("b@y.example", 16))
	expect("while a call that began later was accepted", call("d@v.example", 15), 17, false)

	one := call("e@w.example", 18)
	expect("an email", one, 19, true)
	r.answered(call("e@w.example", 20))
	one.Began = at(21)
	expect("the same email after another of its sender", one, 22, false)

	for i := range 2 * maxRefusals {
		r.concernAccount(call(strconv.Itoa(i)+"@"+strconv.Itoa(i), 30), at(30))
	}
	if len(r.first) > maxRefusals {
		t.Errorf("%d refusals are remembered", len(r.first))
	}
}

// However many emails of a sender are refused, they are one sender: its evidence is kept.
func TestRefusals_ManyEmailsOfOneSender(t *testing.T) {
	t.Parallel()
	begin := time.Now()
	var r refusals
	call := func(sender string, second int) Call {
		return Call{Email: uuid.New(), Sender: sender, Began: begin.Add(time.Duration(second) * time.Second)}
	}
	r.concernAccount(call("a@x.example", 1), begin)
	r.answered(call("b@y.example", 2))
	for range 3 * maxRefusals {
		if r.concernAccount(call("a@x.example", 3), begin) {
			t.Fatal("a later email of the sender concerns the account")
		}
	}
}
