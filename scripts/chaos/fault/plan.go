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
	Seed       uint64 // of the fault's own random choices
}

// Scope are the constraints of a plan.
type Scope struct {
	Seed     uint64
	Duration time.Duration
	// Settle is how long after the duration the system may need to recover from the last faults.
	Settle time.Duration
	// Faults is the wanted number of faults, Kills the minimum number of kills of each component
	// that can be killed.
	Faults, Kills int
}

const (
	// settleIn is the time at the beginning without faults, in which the programs start their work.
	settleIn = 2 * time.Second
	// maxConcurrent is the maximum number of concurrent faults: with more, the system would never work and
	// the run would test nothing.
	maxConcurrent = 4
	// freezeMinDuration is the minimum duration for a run in which each kind of program is frozen for
	// freezeTime.
	freezeMinDuration = 5 * time.Minute
	// maxPlacements is the maximum number of attempts to place a fault.
	maxPlacements = 400
)

// Plan generates a plan. The same seed, scope and kinds give the same plan. Faults that do not fit
// are left out.
func Plan(scope Scope, kinds []Kind) []Step {
	random := rand.New(rand.NewPCG(scope.Seed, 0))
	var plan []Step
	for _, wanted := range candidates(scope, kinds, random) {
		for range maxPlacements {
			if step, ok := place(scope, wanted, random); ok && fits(plan, step) {
				plan = append(plan, step)
				break
			}
		}
	}
	slices.SortStableFunc(plan, func(a, b Step) int { return cmp.Compare(a.At, b.At) })
	return plan
}

// candidate is a kind with the components that it may affect.
type candidate struct {
	kind     Kind
	subjects []string
}

// candidates lists the wanted faults, the hardest to place first: the long ones, then the required
// kills, then one of each kind, then random ones by weight.
func candidates(scope Scope, kinds []Kind, random *rand.Rand) []candidate {
	var list []candidate
	shuffled := slices.Clone(kinds)
	random.Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
	for _, k := range shuffled { // all of them if they fit one after the other
		if k.Shortest >= freezeTime && (len(list) == 0 || scope.Duration > freezeMinDuration) {
			list = append(list, candidate{k, k.Subjects})
		}
	}
	for _, k := range shuffled {
		for _, subject := range k.Subjects {
			if !k.Kills {
				break
			}
			for range scope.Kills {
				list = append(list, candidate{k, []string{subject}})
			}
		}
	}
	for range 4 * len(kinds) { // in a short run kinds that come late may be left out
		if len(list) >= scope.Faults || len(shuffled) == 0 {
			break
		}
		i := draw(shuffled, random)
		list = append(list, candidate{shuffled[i], shuffled[i].Subjects})
		shuffled = slices.Delete(shuffled, i, i+1)
	}
	for len(list) < scope.Faults {
		k := kinds[draw(kinds, random)]
		list = append(list, candidate{k, k.Subjects})
	}
	return list
}

// draw returns the index of a random kind, with probabilities by weight.
func draw(kinds []Kind, random *rand.Rand) int {
	sum := 0
	for _, k := range kinds {
		sum += k.Weight
	}
	left := random.IntN(sum)
	for i, k := range kinds {
		if left -= k.Weight; left < 0 {
			return i
		}
	}
	return len(kinds) - 1
}

// place chooses a random time, duration and subject. A fault ends before the end of the run, and
// early enough for the recovery; a freeze may end after the run.
func place(scope Scope, w candidate, random *rand.Rand) (Step, bool) {
	k := w.kind
	length := k.Shortest
	if k.Longest > k.Shortest {
		length += time.Duration(random.Int64N(int64(k.Longest - k.Shortest)))
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
		At: settleIn + time.Duration(random.Int64N(int64(latest-settleIn))), Length: length, Kind: k,
		Subject: w.subjects[random.IntN(len(w.subjects))], Seed: random.Uint64(),
	}, true
}

// recovery is the minimum time between two faults of a component.
const recovery = 2 * time.Second

// fits reports whether the step overlaps no other one on its components, and not too many on
// others.
func fits(plan []Step, step Step) bool {
	meanwhile := 0
	for _, other := range plan {
		if step.At >= other.At+other.Length+recovery || other.At >= step.At+step.Length+recovery {
			continue
		}
		for _, component := range components(step.Subject) {
			if slices.Contains(components(other.Subject), component) {
				return false
			}
		}
		if other.Length < freezeTime {
			meanwhile++
		}
	}
	return meanwhile < maxConcurrent
}
