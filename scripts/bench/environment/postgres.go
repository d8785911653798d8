package environment

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"

	"email-gateway/scripts/local/programs"
)

// postgresTool finds a program of the Postgres server. Debian installs those of each major version
// in a separate folder, outside PATH; scripts/services.sh runs the newest version.
func postgresTool(name string) (string, error) {
	found, err := filepath.Glob("/usr/lib/postgresql/*/bin/" + name)
	if err != nil {
		return "", fmt.Errorf("find %s: %w", name, err)
	}
	if len(found) > 0 {
		return slices.MaxFunc(found, func(a, b string) int { return majorVersion(a) - majorVersion(b) }), nil
	}
	path, err := exec.LookPath(name)
	if err != nil {
		return "", fmt.Errorf("find %s: %w", name, err)
	}
	return path, nil
}

// majorVersion returns the 15 of /usr/lib/postgresql/15/bin/psql.
func majorVersion(path string) int {
	version, _ := strconv.Atoi(filepath.Base(filepath.Dir(filepath.Dir(path)))) // 0 sorts last
	return version
}

// PostgresRun runs such a program and returns what it printed.
func PostgresRun(ctx context.Context, name string, args ...string) (string, error) {
	path, err := postgresTool(name)
	if err != nil {
		return "", err
	}
	out, err := programs.Output(ctx, programs.Environ(nil), path, args...)
	return string(out), err
}

var tps = regexp.MustCompile(`(?m)^tps = ([0-9.]+)`)

// longest is the maximum duration of pgbench in seconds.
const longest = 32

// Pgbench runs the transaction in the script file with that number of concurrent clients and
// returns the commits per second. If there was none, which happens within a second on a busy
// machine, it repeats the run with twice the time.
func Pgbench(ctx context.Context, databaseURL, script string, clients, seconds int) (float64, error) {
	out, err := PostgresRun(ctx, "pgbench", "-n", "-M", "prepared", "-c", strconv.Itoa(clients), "-j", "2",
		"-T", strconv.Itoa(seconds), "-f", script, databaseURL)
	if err != nil {
		return 0, err
	}
	found := tps.FindStringSubmatch(out)
	switch {
	case found != nil:
		return strconv.ParseFloat(found[1], 64)
	case seconds < longest:
		return Pgbench(ctx, databaseURL, script, clients, 2*seconds)
	}
	return 0, fmt.Errorf("pgbench printed %q", out)
}
