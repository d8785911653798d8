package local

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// Build compiles the gateway's programs, api, dispatcher, worker, migrate and gatewayctl, from the
// checkout root into the directory bin, as for a release: without the race detector, which would
// distort measurements. more are further flags of go build, followed by packages of other programs
// to build.
func Build(ctx context.Context, root, bin string, more ...string) error {
	args := append([]string{"build", "-o", bin + "/"}, more...)
	args = append(args, "./api/cmd/api", "./api/cmd/gatewayctl", "./worker/cmd/dispatcher", "./worker/cmd/worker", "./schema/cmd/migrate")
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build the programs: %w\n%s", err, out)
	}
	return nil
}

// Checkout looks for go.work upwards from the working directory.
func Checkout() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("find the checkout: %w", err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.work")); err == nil {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", errors.New("find the checkout: there is no go.work around the working directory; name it with -root")
		}
		dir = filepath.Dir(dir)
	}
}
