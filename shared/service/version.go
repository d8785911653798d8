package service

import (
	"cmp"
	"runtime/debug"
)

// release is the version set by the linker when the programs are built outside a repository, as in
// the Dockerfiles.
var release string

// Version returns the release set at build time, else the module's version, else the commit, with
// +dirty if files had changed since; "unknown" if there is none of them.
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
			revision = s.Value[:min(len(s.Value), 12)] // the length in Go's pseudo-versions
		case s.Key == "vcs.modified" && s.Value == "true":
			changed = "+dirty"
		}
	}
	if revision == "" {
		return ""
	}
	return revision + changed
}
