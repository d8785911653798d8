package bench

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// profiler is a file that makes a program write a profile of its processor time from one
// signal to the next. No program has it by itself: it is put over the checkout while it
// is built, when profiles are asked for.
//
//go:embed profiler.go.txt
var profiler []byte

const (
	beginProfile = syscall.SIGUSR1
	endProfile   = syscall.SIGUSR2
)

// writeOverlay writes what go build's -overlay reads, and returns the name of that file.
func writeOverlay(root, dir string) (string, error) {
	source, overlay := filepath.Join(dir, "profiler.go"), filepath.Join(dir, "overlay.json")
	replace := make(map[string]string)
	for _, program := range []string{"api/cmd/api", "worker/cmd/dispatcher", "worker/cmd/worker"} {
		replace[filepath.Join(root, program, "bench_profiler.go")] = source
	}
	text, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", fmt.Errorf("write overlay: %w", err)
	}
	for name, content := range map[string][]byte{source: profiler, overlay: text} {
		if err := os.WriteFile(name, content, 0o600); err != nil {
			return "", fmt.Errorf("write overlay: %w", err)
		}
	}
	return overlay, nil
}

// profile tells the program to begin or to end its profile, if profiles are asked for.
func (p *Program) profile(signal syscall.Signal) error {
	if p.rig.cfg.Profiles == "" || p.Kind == "naive" {
		return nil
	}
	if err := p.cmd.Process.Signal(signal); err != nil {
		return fmt.Errorf("profile %s: %w", p.Kind, err)
	}
	return nil
}
