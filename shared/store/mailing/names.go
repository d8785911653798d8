package mailing

import "slices"

// maxNames limits the names of columns that are stored for one line (bytes), and therefore the size of a page of them. The
// header of a file has up to 200 names of together 64 KiB: without the limit a line of ten bytes could store all of them.
const maxNames = 512

// otherNames replaces names beyond maxNames.
const otherNames = "…"

// limitNames returns the names, or those at the beginning that fit and otherNames.
func limitNames(names []string) []string {
	size := 0
	for i, name := range names {
		if size += len(name); size > maxNames {
			return append(slices.Clip(names[:i]), otherNames)
		}
	}
	return names
}

// limitName is limitNames for one name.
func limitName(name string) string { return limitNames([]string{name})[0] }
