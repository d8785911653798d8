package fault

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"time"
)

// Step is one fault of a plan.
type Step struct {
	At, Length time.Duration // from the beginning of the run
	Kind       Kind
	Subject    string
	Seed       uint64 // of what the fault decides by itself
}

// Scope is what a plan has to fit into.
type Scope struct {
	Seed     uint64
	Duration time.Duration
	// Settle is how long after the duration the traces of the last faults may stay.
	Settle time.Duration
	// Faults is how many are wanted, Kills how often at least each part is killed that
	// can be.
	Faults, Kills int
}

const (
	// settleIn: nothing breaks before the programs have had something to do.
	settleIn = 2 * time.Second
	// atOnce is how many parts may be broken at the same time: with more, nothing would
	// ever work, and nothing would be tested.
	atOnce = 4
	// longEnough is a run in which each kind of program is frozen for freezeTime.
	longEnough = 5 * time.Minute
	// draws is how often another place is tried for a fault that does not fit.
	draws = 400
)

// Plan draws a plan. The same seed, scope and kinds give the same plan. What does not
// fit is left out.
func Plan(scope Scope, kinds []Kind) []Step {
	dice := rand.New(rand.NewPCG(scope.Seed, 0))
	var plan []Step
	for _, wanted := range wishes(scope, kinds, dice) {
		for range draws {
			if step, ok := place(scope, wanted, dice); ok && fits(plan, step) {
				plan = append(plan, step)
				break
			}
		}
	}
	slices.SortStableFunc(plan, func(a, b Step) int { return cmp.Compare(a.At, b.At) })
	return plan
}

// wish is a kind with the parts that it may befall.
type wish struct {
	kind     Kind
	subjects []string
}

// wishes lists what is wanted, the most demanding first: the long ones, then the kills
// that must be, then one of each kind, then whatever the weights say.
func wishes(scope Scope, kinds []Kind, dice *rand.Rand) []wish {
	var list []wish
	shuffled := slices.Clone(kinds)
	dice.Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
	for _, k := range shuffled { // all of them if there is room for one after the other
		if k.Shortest >= freezeTime && (len(list) == 0 || scope.Duration > longEnough) {
			list = append(list, wish{k, k.Subjects})
		}
	}
	for _, k := range shuffled {
		for _, subject := range k.Subjects {
			if !k.Kills {
				break
			}
			for range scope.Kills {
				list = append(list, wish{k, []string{subject}})
			}
		}
	}
	for range 4 * len(kinds) { // kinds that are drawn late may not come to their turn in a short run
		if len(list) >= scope.Faults || len(shuffled) == 0 {
			break
		}
		i := draw(shuffled, dice)
		list = append(list, wish{shuffled[i], shuffled[i].Subjects})
		shuffled = slices.Delete(shuffled, i, i+1)
	}
	for len(list) < scope.Faults {
		k := kinds[draw(kinds, dice)]
		list = append(list, wish{k, k.Subjects})
	}
	return list
}

// draw returns the index of a kind, each as likely as it weighs.
func draw(kinds []Kind, dice *rand.Rand) int {
	sum := 0
	for _, k := range kinds {
		sum += k.Weight
	}
	left := dice.IntN(sum)
	for i, k := range kinds {
		if left -= k.Weight; left < 0 {
			return i
		}
	}
	return len(kinds) - 1
}

// place draws when, for how long and whom. A fault ends with the run at the latest, or so
// much earlier that its traces are gone in time; a freeze may end behind it.
func place(scope Scope, w wish, dice *rand.Rand) (Step, bool) {
	k := w.kind
	length := k.Shortest
	if k.Longest > k.Shortest {
		length += time.Duration(dice.Int64N(int64(k.Longest - k.Shortest)))
	}
	end := min(scope.Duration, scope.Duration+scope.Settle-k.Heal)
	if k.Shortest >= freezeTime {
		end = scope.Duration + scope.Settle - k.Heal
	}
	latest := end - length
	if latest <= settleIn {
		return Step{}, false
	}
	return Step{
		At: settleIn + time.Duration(dice.Int64N(int64(latest-settleIn))), Length: length, Kind: k,
		Subject: w.subjects[dice.IntN(len(w.subjects))], Seed: dice.Uint64(),
	}, true
}

// recovery is what a part is given after a fault before the next one befalls it.
const recovery = 2 * time.Second

// fits says that the step meets no other one on its parts, and not too many elsewhere.
func fits(plan []Step, step Step) bool {
	meanwhile := 0
	for _, other := range plan {
		if step.At >= other.At+other.Length+recovery || other.At >= step.At+step.Length+recovery {
			continue
		}
		for _, part := range parts(step.Subject) {
			if slices.Contains(parts(other.Subject), part) {
				return false
			}
		}
		if other.Length < freezeTime {
			meanwhile++
		}
	}
	return meanwhile < atOnce
}
