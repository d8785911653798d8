// Package e2e_test tests the built programs from outside: HTTP in, SES out, with real Postgres, Redis and RabbitMQ
// between, each of which the tests stop, freeze or kill. The programs are built once, as for a release. With E2E_RACE=yes
// they have the race detector, which more than doubles the time of the tests: test.sh --long runs some of them so. A program
// that exits with an error fails the test that started it.
package e2e_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	_ "github.com/lib/pq"
)

// binDir contains the built programs, and rootDir is the checkout. TestMain sets both.
var binDir, rootDir string

func TestMain(m *testing.M) {
	os.Exit(run(m))
}

func run(m *testing.M) int {
	var err error
	if rootDir, err = filepath.Abs("../.."); err != nil {
		fmt.Fprintln(os.Stderr, "find the checkout:", err)
		return 1
	}
	flavor, flags := "release", []string(nil)
	if os.Getenv("E2E_RACE") != "" {
		flavor, flags = "race", []string{"-race"}
	}
	binDir = filepath.Join(rootDir, ".local", "e2e", flavor)
	if err := build(binDir, append(flags, "./api/cmd/...", "./worker/cmd/...", "./schema/cmd/migrate", "./scripts/cmd/interviews")...); err != nil {
		fmt.Fprintln(os.Stderr, "build the programs:", err)
		return 1
	}
	code := m.Run()
	if err := hosts.remove(); err != nil {
		fmt.Fprintln(os.Stderr, "remove the virtual hosts:", err)
		return 1
	}
	return code
}

// build builds programs into a directory that later runs use again: go build links only what has changed. It omits debug
// information, which takes a third of the time.
func build(dir string, args ...string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	build := exec.Command("go", append([]string{"build", "-ldflags=-s -w", "-o", dir + "/"}, args...)...)
	build.Dir = rootDir
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("%w\n%s", err, out)
	}
	return nil
}
