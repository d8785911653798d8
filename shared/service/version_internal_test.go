package service

import (
	"runtime/debug"
	"testing"
)

func TestVersion(t *testing.T) {
	t.Parallel()
	commit := debug.BuildSetting{Key: "vcs.revision", Value: "2c3c94b2e760a395527debc806909624d415c77e"}
	changed := func(value string) debug.BuildSetting { return debug.BuildSetting{Key: "vcs.modified", Value: value} }
	for want, info := range map[string]*debug.BuildInfo{
		"":                   nil,
		"v1.4.0":             {Main: debug.Module{Version: "v1.4.0"}, Settings: []debug.BuildSetting{commit, changed("false")}},
		"2c3c94b2e760":       {Main: debug.Module{Version: "(devel)"}, Settings: []debug.BuildSetting{commit, changed("false")}},
		"2c3c94b2e760+dirty": {Settings: []debug.BuildSetting{changed("true"), commit}},
	} {
		if got := versionOf(info); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	for _, nothing := range []*debug.BuildInfo{{}, {Main: debug.Module{Version: "(devel)"}, Settings: []debug.BuildSetting{changed("true")}}} {
		if got := versionOf(nothing); got != "" {
			t.Errorf("the version of a program without build information is %q", got)
		}
	}
	if Version() == "" {
		t.Error("the version of the running program is empty")
	}
}
