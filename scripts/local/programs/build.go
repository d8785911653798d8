package programs

import (
	"context"
	"fmt"
	"os/exec"
)

// Gateway lists the packages of the gateway's programs, below the checkout's root.
func Gateway() []string {
	return []string{"./api/cmd/api", "./api/cmd/gatewayctl", "./worker/cmd/dispatcher", "./worker/cmd/worker", "./schema/cmd/migrate"}
}

// Build compiles programs into the directory bin. args are flags of go build, followed by packages
// relative to the directory dir. Debug information is omitted: it takes a third of the time.
func Build(ctx context.Context, dir, bin string, args ...string) error {
	cmd := exec.CommandContext(ctx, "go", append([]string{"build", "-ldflags=-s -w", "-o", bin + "/"}, args...)...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build the programs: %w\n%s", err, out)
	}
	return nil
}
