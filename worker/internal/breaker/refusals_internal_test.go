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
	expect("the first", call("a", 0), 1, true)
	expect("the same sender, nothing accepted meanwhile", call("a", 2), 3, true)
	r.answered(call("b", 0)) // in flight at the first refusal: the account may have been closed since
	expect("after a call that began earlier", call("a", 4), 5, true)
	r.answered(call("b", 6))
	expect("after a call that began later", call("a", 7), 8, false)
	expect("another sender", call("c", 7), 8, true)
	r.answered(call("a", 9))
	expect("after one of its own", call("a", 10), 11, true)

	one := call("d", 12)
	expect("an email", one, 13, true)
	r.answered(call("d", 14))
	expect("the same email after another of its sender", one, 15, false)
	expect("the same email, hours later", one, 13+7200, true)

	for i := range 2 * maxRefusals {
		r.concernAccount(call(strconv.Itoa(i), 20), at(20))
	}
	if len(r.first) > maxRefusals+1 {
		t.Errorf("%d refusals are remembered", len(r.first))
	}
}
