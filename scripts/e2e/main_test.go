// Package e2e_test drives the real programs from outside: HTTP in, SES out, real
// Postgres and Redis between, and every one of them stopped or killed on the way.
// The programs are built once, with the race detector (as for release when MAILING_ROWS
// asks for large files); a program that ends with
// anything but success fails the test that started it.
package e2e_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	_ "github.com/lib/pq"
)

// Where the built programs and the checkout are, set once by TestMain.
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
	if binDir, err = os.MkdirTemp("", "email-gateway-e2e-"); err != nil {
		fmt.Fprintln(os.Stderr, "make a directory for the programs:", err)
		return 1
	}
	defer func() { _ = os.RemoveAll(binDir) }()
	build := exec.Command("go", "build", "-race="+strconv.FormatBool(os.Getenv("MAILING_ROWS") == ""), "-o", binDir+"/",
		"./api/cmd/...", "./worker/cmd/...", "./schema/cmd/migrate", "./scripts/cmd/interviews")
	build.Dir = rootDir
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "build the programs: %v\n%s", err, out)
		return 1
	}
	code := m.Run()
	if err := hosts.remove(); err != nil {
		fmt.Fprintln(os.Stderr, "remove the virtual hosts:", err)
		return 1
	}
	return code
}
