// Package e2e_test tests the built programs from outside: HTTP in, SES out, with real Postgres, Redis and RabbitMQ
// between, each of which the tests stop, freeze or kill. The programs are built once, as for a release. With E2E_RACE=yes
// they have the race detector, which more than doubles the time of the tests: test.sh --long runs some of them so. A program
// that exits with an error fails the test that started it.
package e2e_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	_ "github.com/lib/pq"

	"email-gateway/scripts/local/programs"
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
	// go build links only what has changed since the last run.
	binDir = filepath.Join(rootDir, ".local", "e2e", flavor)
	if err := programs.Build(context.Background(), rootDir, binDir, slices.Concat(flags, programs.Gateway(), []string{"./scripts/cmd/interviews"})...); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	code := m.Run()
	if err := hosts.remove(); err != nil {
		fmt.Fprintln(os.Stderr, "remove the virtual hosts:", err)
		return 1
	}
	return code
}
