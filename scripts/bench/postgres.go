package bench

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
)

// postgresTool finds a program that comes with the Postgres server. Debian keeps those of
// each major version in a folder of its own, outside PATH; the newest is the one that
// scripts/services.sh runs.
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

// majorVersion is the 15 of /usr/lib/postgresql/15/bin/psql.
func majorVersion(path string) int {
	version, _ := strconv.Atoi(filepath.Base(filepath.Dir(filepath.Dir(path)))) // 0 comes last
	return version
}

// postgresRun runs such a program and returns what it printed.
func postgresRun(ctx context.Context, name string, args ...string) (string, error) {
	path, err := postgresTool(name)
	if err != nil {
		return "", err
	}
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Env = environ(nil)
	out, err := cmd.Output()
	if failed := (*exec.ExitError)(nil); errors.As(err, &failed) {
		err = fmt.Errorf("%w: %s", err, failed.Stderr)
	}
	if err != nil {
		return "", fmt.Errorf("%s: %w", name, err)
	}
	return string(out), nil
}

var tps = regexp.MustCompile(`(?m)^tps = ([0-9.]+)`)

// longest is how many seconds pgbench may be given, at last.
const longest = 32

// pgbench runs the transaction in the script file from so many clients at once and returns
// how many were committed per second. One that came to none, which happens within a second
// on a machine that is busy with other things, gets twice the time.
func pgbench(ctx context.Context, databaseURL, script string, clients, seconds int) (float64, error) {
	out, err := postgresRun(ctx, "pgbench", "-n", "-M", "prepared", "-c", strconv.Itoa(clients), "-j", "2",
		"-T", strconv.Itoa(seconds), "-f", script, databaseURL)
	if err != nil {
		return 0, err
	}
	found := tps.FindStringSubmatch(out)
	switch {
	case found != nil:
		return strconv.ParseFloat(found[1], 64)
	case seconds < longest:
		return pgbench(ctx, databaseURL, script, clients, 2*seconds)
	}
	return 0, fmt.Errorf("pgbench printed %q", out)
}
