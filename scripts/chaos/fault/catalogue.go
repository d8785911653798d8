package fault

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"email-gateway/scripts/chaos/stage"
)

// Kinds is the catalogue.
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

// Names are the kinds' names.
func Names(kinds []Kind) []string {
	names := make([]string, len(kinds))
	for i, k := range kinds {
		names[i] = k.Name
	}
	return names
}

// everyLink stands for all links to a dependency at once.
const everyLink = "every:"

// parts are the single parts that a subject means.
func parts(subject string) []string {
	if dependency, every := strings.CutPrefix(subject, everyLink); every {
		return stage.LinkNames(dependency)
	}
	return []string{subject}
}

func seconds(n float64) time.Duration { return time.Duration(n * float64(time.Second)) }
