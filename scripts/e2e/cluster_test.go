package e2e_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"email-gateway/scripts/local/programs"
)

// cluster is a cluster of scripts/clusters.sh, owned by one test.
type cluster struct {
	Env map[string]string // the URLs of its programs

	t         *testing.T
	name, dir string
}

// needsClusters skips a test that scripts/test-clusters.sh runs.
func needsClusters(t *testing.T) {
	t.Helper()
	if os.Getenv("CLUSTERS") == "" {
		t.Skip("run ./scripts/test-clusters.sh")
	}
}

// startCluster starts all nodes, and destroys them when the test ends.
func startCluster(t *testing.T, name string) *cluster {
	t.Helper()
	c := &cluster{t: t, name: name, dir: t.TempDir()}
	t.Cleanup(func() { c.script("destroy") })
	c.start()
	c.Env = c.env()
	return c
}

// start starts nodes that were stopped or killed. Without a name it waits until the cluster
// is complete.
func (c *cluster) start(nodes ...string) { c.t.Helper(); c.script("start", nodes...) }

// kill ends nodes as a crash would.
func (c *cluster) kill(nodes ...string) { c.t.Helper(); c.script("kill", nodes...) }

// freeze stops the processes of nodes: connections stay open and do not answer.
func (c *cluster) freeze(nodes ...string) { c.t.Helper(); c.script("freeze", nodes...) }

// thaw continues frozen nodes.
func (c *cluster) thaw(nodes ...string) { c.t.Helper(); c.script("thaw", nodes...) }

// env returns the settings with which the programs reach the cluster, or the test one node.
func (c *cluster) env(node ...string) map[string]string {
	c.t.Helper()
	env := make(map[string]string)
	for line := range strings.Lines(c.script("env", node...)) {
		name, value, _ := strings.Cut(strings.TrimPrefix(strings.TrimSpace(line), "export "), "=")
		env[name] = strings.Trim(value, "'")
	}
	return env
}

func (c *cluster) script(command string, nodes ...string) string {
	c.t.Helper()
	out, err := c.tryScript(command, nodes...)
	if err != nil {
		c.t.Fatal(err)
	}
	return out
}

// tryScript runs clusters.sh and returns what it printed.
func (c *cluster) tryScript(command string, nodes ...string) (string, error) {
	// The test's context may have ended: clean-up runs after it.
	out, err := programs.Output(context.Background(), append(os.Environ(), "LOCAL_DIR="+c.dir), filepath.Join(rootDir, "scripts", "clusters.sh"),
		append([]string{command, c.name}, nodes...)...)
	return string(out), err
}
