package service

import (
	"math"
	"os"
	"path/filepath"
	"runtime/debug"
	"testing"
)

func TestSetMemory_GCPercent(t *testing.T) {
	before := debug.SetGCPercent(100)
	defer debug.SetGCPercent(before)
	for gogc, want := range map[string]int{"200": 100, "off": 100, "": 300} { // the runtime has already applied GOGC
		t.Setenv("GOGC", gogc)
		setMemory(t.TempDir())
		if got := debug.SetGCPercent(100); got != want {
			t.Errorf("GOGC %q: %d %%, want %d", gogc, got, want)
		}
	}
}

// The limit of the container, or of a group above it, is followed.
func TestSetMemory_Limit(t *testing.T) {
	before, percent := debug.SetMemoryLimit(-1), debug.SetGCPercent(-1)
	defer debug.SetMemoryLimit(before)
	defer debug.SetGCPercent(percent)
	const mib, none = 1 << 20, math.MaxInt64
	for name, c := range map[string]struct {
		files      map[string]string
		gomemlimit string
		atLeast    int64
		atMost     int64
	}{
		"not a container":      {nil, "", none, none},
		"container":            {map[string]string{"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "536870912\n"}, "", 434 * mib, 436 * mib},
		"no limit":             {map[string]string{"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "max\n"}, "", none, none},
		"the environment wins": {map[string]string{"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "536870912\n"}, "1GiB", none, none},
		"a group above": {map[string]string{
			"proc/self/cgroup": "0::/a.slice/b.service\n", "sys/fs/cgroup/a.slice/memory.max": "536870912\n", "sys/fs/cgroup/a.slice/b.service/memory.max": "1073741824\n",
		}, "", 434 * mib, 436 * mib},
		"another path in the container": {map[string]string{"proc/self/cgroup": "0::/../host\n", "sys/fs/cgroup/memory.max": "536870912\n"}, "", 434 * mib, 436 * mib},
		"version 1": {map[string]string{
			"proc/self/cgroup": "3:cpu,cpuacct:/x\n2:memory:/docker/x\n", "sys/fs/cgroup/memory/memory.limit_in_bytes": "536870912\n",
		}, "", 434 * mib, 436 * mib},
		"version 1 without a limit": {map[string]string{
			"proc/self/cgroup": "2:memory:/\n", "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
		}, "", none, none},
	} {
		root := t.TempDir()
		for path, content := range c.files {
			path = filepath.Join(root, path)
			if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		t.Setenv("GOMEMLIMIT", c.gomemlimit) // the runtime has already applied it
		debug.SetMemoryLimit(none)
		setMemory(root)
		if got := debug.SetMemoryLimit(-1); got < c.atLeast || got > c.atMost {
			t.Errorf("%s: %d MiB", name, got/mib)
		}
	}
}
