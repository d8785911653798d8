package e2e_test

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"email-gateway/scripts/docs"
	"email-gateway/scripts/local/programs"
)

// The commands of README.md and CONTRIBUTING.md work for a new user: they are run unchanged and in order in a fresh
// copy of the checkout. Blocks that are marked as not run give a reason.
func TestReadme_Commands(t *testing.T) {
	t.Parallel()
	n := newUser{t: t, dir: copyOfCheckout(t)}
	// Without paths in the output, the build cache also works for a copy in another folder.
	n.env = append(ownSettings(), "GOFLAGS="+os.Getenv("GOFLAGS")+" -trimpath")
	n.env = append(n.env, n.freeAddresses("API_ADDR", "DISPATCHER_ADDR", "WORKER_ADDR", "METRICS_ADDR", "SES_SIM_ADDR")...)
	t.Cleanup(func() { n.run("clean up", "./scripts/services.sh destroy") })
	ran := 0
	for _, file := range []string{"README.md", "CONTRIBUTING.md"} {
		text, err := os.ReadFile(filepath.Join(rootDir, file))
		if err != nil {
			t.Fatal(err)
		}
		blocks, err := docs.Blocks(string(text))
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		for _, block := range blocks {
			where := fmt.Sprintf("%s, line %d", file, block.Line)
			switch {
			case block.NotRun != "":
				t.Logf("%s is not run: %s", where, block.NotRun)
				continue
			case block.Stays:
				n.start(where, block.Text)
			default:
				started := time.Now()
				n.run(where, block.Text)
				t.Logf("%s took %s", where, time.Since(started).Round(100*time.Millisecond))
			}
			ran++
		}
	}
	if ran < 6 {
		t.Errorf("only %d blocks were run", ran)
	}
}

// newUser is a shell in a checkout of its own.
type newUser struct {
	t   *testing.T
	dir string
	env []string
}

func (n newUser) shell(text string) *exec.Cmd {
	// The test's context has ended during clean-up.
	shell := exec.CommandContext(context.Background(), "bash", "-euo", "pipefail", "-c", text)
	shell.Dir, shell.Env = n.dir, n.env
	shell.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	return shell
}

func (n newUser) run(where, text string) {
	n.t.Helper()
	if out, err := n.shell(text).CombinedOutput(); err != nil {
		n.t.Fatalf("%s: %v\n%s\n%s", where, err, text, lastLines(string(out), 60))
	}
}

// firstBuild limits a start: nothing was built with these flags before, and two busy cores take more than four
// minutes for all programs.
const firstBuild = 15 * time.Minute

// start runs a command that stays until Ctrl-C, waits until it prints ready, and ends it with the test.
func (n newUser) start(where, text string) {
	n.t.Helper()
	p := &program{t: n.t, name: where, log: filepath.Join(n.t.TempDir(), "log")}
	p.start(programs.Spec{
		Path: "bash", Args: []string{"-euo", "pipefail", "-c", "exec " + strings.TrimSpace(text)}, Dir: n.dir, Environ: n.env, Orphaned: syscall.SIGTERM,
	})
	ctx := context.Background() // the test's has ended during clean-up
	n.t.Cleanup(func() {
		p.signal(os.Interrupt)
		if err := p.process.Wait(ctx, stallLimit); err != nil {
			n.t.Errorf("%s: %v", where, err)
		}
	})
	p.awaitOutput(firstBuild, regexp.MustCompile(`(?m)^ready$`))
}

// freeAddresses replaces dev.sh's default listeners, which may be in use on the tester's machine.
func (n newUser) freeAddresses(names ...string) (settings []string) {
	n.t.Helper()
	for _, name := range names {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			n.t.Fatal(err)
		}
		defer listener.Close() // all at once, or two would be the same
		settings = append(settings, name+"="+listener.Addr().String())
	}
	return settings
}

// ownSettings are the settings of the environment about the machine, not those about the gateway of the other tests.
func ownSettings() []string {
	machine := []string{"PATH", "HOME", "USER", "LANG", "LC_ALL", "TMPDIR", "TZ", "SSL_CERT_FILE", "SSL_CERT_DIR", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY"}
	return slices.DeleteFunc(os.Environ(), func(setting string) bool {
		name, _, _ := strings.Cut(setting, "=")
		return !slices.Contains(machine, name) && !strings.HasPrefix(name, "GO") && !slices.Contains(machine, strings.ToUpper(name))
	})
}

// copyOfCheckout copies the files of the checkout as they are now, without build output.
func copyOfCheckout(t *testing.T) string {
	t.Helper()
	to := filepath.Join(t.TempDir(), "email-gateway")
	err := filepath.WalkDir(rootDir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		below, err := filepath.Rel(rootDir, path)
		if err != nil {
			return err
		}
		switch {
		case entry.IsDir() && slices.Contains([]string{".git", ".local", "bin"}, below):
			return filepath.SkipDir
		case entry.IsDir():
			return os.MkdirAll(filepath.Join(to, below), 0o755)
		case !entry.Type().IsRegular() || below == ".git" || below == ".env":
			return nil
		}
		return copyFile(filepath.Join(to, below), path)
	})
	if err != nil {
		t.Fatalf("copy the checkout: %v", err)
	}
	return to
}

func copyFile(to, from string) (err error) {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	info, err := in.Stat()
	if err != nil {
		return err
	}
	out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY|os.O_EXCL, info.Mode().Perm())
	if err != nil {
		return err
	}
	if _, err = io.Copy(out, in); err != nil {
		_ = out.Close()
		return err
	}
	return out.Close()
}
