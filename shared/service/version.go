package service

import (
	"cmp"
	"runtime/debug"
)

// release is the version that whoever builds the programs outside a repository gives
// them, as the Dockerfiles do; the linker writes it and nobody else.
var release string

// Version says which release this program is of: the one that it was given when it was
// built, else its module's version, else the commit it was built from, with +dirty where
// the files had been changed since. It is "unknown" where the program was built without
// any of them.
func Version() string {
	info, _ := debug.ReadBuildInfo() // nil where there is none
	return cmp.Or(release, versionOf(info), "unknown")
}

func versionOf(info *debug.BuildInfo) string {
	if info == nil {
		return ""
	}
	if v := info.Main.Version; v != "" && v != "(devel)" {
		return v
	}
	var revision, changed string
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			revision = s.Value[:min(len(s.Value), 12)] // as Go's own versions name commits
		case s.Key == "vcs.modified" && s.Value == "true":
			changed = "+dirty"
		}
	}
	if revision == "" {
		return ""
	}
	return revision + changed
}
