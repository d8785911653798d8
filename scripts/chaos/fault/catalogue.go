package fault

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"email-gateway/scripts/chaos/cluster"
)

// Kinds returns all kinds of faults.
func Kinds() []Kind {
	return slices.Concat(programKinds(), serviceKinds(), linkKinds(), mailKinds(), operatorKinds())
}

// Only returns the kinds with those names, separated by commas; "" means all.
func Only(names string) ([]Kind, error) {
	all := Kinds()
	if names == "" {
		return all, nil
	}
	var some []Kind
	for name := range strings.SplitSeq(names, ",") {
		i := slices.IndexFunc(all, func(k Kind) bool { return k.Name == name })
		if i < 0 {
			return nil, fmt.Errorf("no kind of fault is named %q; there are %s", name, strings.Join(Names(all), ", "))
		}
		some = append(some, all[i])
	}
	return some, nil
}

// Names returns the kinds' names.
func Names(kinds []Kind) []string {
	names := make([]string, len(kinds))
	for i, k := range kinds {
		names[i] = k.Name
	}
	return names
}

// everyLink is the prefix of a subject that means all links to a dependency.
const everyLink = "every:"

// components returns the components of a subject.
func components(subject string) []string {
	if dependency, every := strings.CutPrefix(subject, everyLink); every {
		return cluster.LinkNames(dependency)
	}
	return []string{subject}
}

func seconds(n float64) time.Duration { return time.Duration(n * float64(time.Second)) }
