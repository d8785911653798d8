package environment

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// profiler is a source file that makes a program write a CPU profile between two signals. It is
// added by go build -overlay when profiles are requested.
//
//go:embed profiler.go.txt
var profiler []byte

const (
	beginProfile = syscall.SIGUSR1
	endProfile   = syscall.SIGUSR2
)

// writeOverlay writes the file for go build's -overlay, and returns its name.
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

// profile signals the program to begin or end its profile, if profiles are requested.
func (p *Program) profile(signal syscall.Signal) error {
	if p.environment.cfg.Profiles == "" || p.Kind == "naive" {
		return nil
	}
	return p.process.Signal(signal)
}
