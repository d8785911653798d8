package ctl

import (
	"regexp"
	"strings"
)

// What cobra says of flags that belong together, or that are missing.
var (
	together = regexp.MustCompile(`^if any flags in the group \[.*\] are set none of the others can be; \[(.*)\] were all set$`)
	oneOf    = regexp.MustCompile(`^at least one of the flags in the group \[(.*)\] is required$`)
	missing  = regexp.MustCompile(`^required flag\(s\) (".*") not set$`)
)

// plainly is cobra's word about flags in words that people type. Everything else stays as
// it is.
func plainly(text string) string {
	if found := together.FindStringSubmatch(text); found != nil {
		return "give only one of " + dashed(strings.Fields(found[1]), " and ")
	}
	if found := oneOf.FindStringSubmatch(text); found != nil {
		return dashed(strings.Fields(found[1]), " or ") + " is missing"
	}
	if found := missing.FindStringSubmatch(text); found != nil {
		flags := strings.Split(strings.ReplaceAll(found[1], `"`, ""), ", ")
		if len(flags) == 1 {
			return "--" + flags[0] + " is missing"
		}
		return dashed(flags, " and ") + " are missing"
	}
	return text
}

// dashed are the flags as they are typed, with a word before the last.
func dashed(flags []string, word string) string {
	for i := range flags {
		flags[i] = "--" + flags[i]
	}
	last := len(flags) - 1
	if last == 0 {
		return flags[0]
	}
	return strings.Join(flags[:last], ", ") + word + flags[last]
}
