package ctl

import (
	"regexp"
	"strings"
)

// Messages of cobra about flag groups and missing flags.
var (
	together = regexp.MustCompile(`^if any flags in the group \[.*\] are set none of the others can be; \[(.*)\] were all set$`)
	oneOf    = regexp.MustCompile(`^at least one of the flags in the group \[(.*)\] is required$`)
	missing  = regexp.MustCompile(`^required flag\(s\) (".*") not set$`)
)

// rewriteFlagError rewrites cobra's messages about flags with the flags as they are typed. Other
// messages are unchanged.
func rewriteFlagError(text string) string {
	if found := together.FindStringSubmatch(text); found != nil {
		return "give only one of " + joinFlags(strings.Fields(found[1]), " and ")
	}
	if found := oneOf.FindStringSubmatch(text); found != nil {
		return joinFlags(strings.Fields(found[1]), " or ") + " is missing"
	}
	if found := missing.FindStringSubmatch(text); found != nil {
		flags := strings.Split(strings.ReplaceAll(found[1], `"`, ""), ", ")
		if len(flags) == 1 {
			return "--" + flags[0] + " is missing"
		}
		return joinFlags(flags, " and ") + " are missing"
	}
	return text
}

// joinFlags joins flags as they are typed, with a word before the last.
func joinFlags(flags []string, word string) string {
	for i := range flags {
		flags[i] = "--" + flags[i]
	}
	last := len(flags) - 1
	if last == 0 {
		return flags[0]
	}
	return strings.Join(flags[:last], ", ") + word + flags[last]
}
