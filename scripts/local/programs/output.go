package programs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Environ returns the environment of a program: its settings, without the caller's own.
func Environ(settings map[string]string) []string {
	list := []string{"PATH=" + os.Getenv("PATH"), "HOME=" + os.Getenv("HOME")}
	for name, value := range settings {
		list = append(list, name+"="+value)
	}
	return list
}

// Output runs a program until it exits and returns what it printed. The error has what it printed to
// standard error.
func Output(ctx context.Context, environ []string, path string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Env = environ
	out, err := cmd.Output()
	if failed := (*exec.ExitError)(nil); errors.As(err, &failed) {
		err = fmt.Errorf("%w: %s", err, failed.Stderr)
	}
	if err != nil {
		err = fmt.Errorf("%s %s: %w", filepath.Base(path), strings.Join(args, " "), err)
	}
	return out, err
}

// NewKey creates a company and a key with the scopes for it, as an operator does, with the
// gatewayctl in the directory bin. The key has no rate limit.
func NewKey(ctx context.Context, environ []string, bin, company, from, scopes string) (string, error) {
	gatewayctl := filepath.Join(bin, "gatewayctl")
	if _, err := Output(ctx, environ, gatewayctl, "company", "create", "--name", company, "--default-from", from, "--json"); err != nil {
		return "", err
	}
	out, err := Output(ctx, environ, gatewayctl, "key", "create", "--company", company, "--scopes", scopes, "--rate", "0", "--json")
	if err != nil {
		return "", err
	}
	var made struct{ Key string }
	if err := json.Unmarshal(out, &made); err != nil || made.Key == "" {
		return "", fmt.Errorf("gatewayctl key create printed %q", out)
	}
	return made.Key, nil
}
