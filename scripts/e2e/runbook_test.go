package e2e_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"email-gateway/scripts/docs"
)

// untilSilent marks a block that an operator repeats until it prints nothing.
const untilSilent = "# Repeat until it prints nothing."

// runbook runs the blocks of a section of OPERATIONS.md unchanged in a shell with the programs on its PATH, and returns
// what they print.
func (s *system) runbook(section string, env map[string]string) (printed string) {
	s.t.Helper()
	blocks := operationsBlocks(s.t)
	found := 0
	for _, block := range blocks {
		if block.Section != section || block.NotRun != "" {
			continue
		}
		found++
		eventually(s.t, func() error {
			out := s.shell(block, env)
			if out != "" && strings.Contains(block.Text, untilSilent) {
				return fmt.Errorf("OPERATIONS.md, line %d, prints %s", block.Line, out)
			}
			printed += out
			return nil
		})
	}
	if found == 0 {
		s.t.Fatalf("OPERATIONS.md has no commands for %q", section)
	}
	return printed
}

func (s *system) shell(block docs.Block, env map[string]string) (output string) {
	s.t.Helper()
	shell := exec.CommandContext(s.t.Context(), "bash", "-euo", "pipefail", "-c", block.Text)
	shell.Dir = s.t.TempDir()
	shell.Env = []string{"PATH=" + binDir + ":" + os.Getenv("PATH"), "HOME=" + os.Getenv("HOME"), "DATABASE_URL=" + s.db.URL}
	for name, value := range env {
		shell.Env = append(shell.Env, name+"="+value)
	}
	out, err := shell.CombinedOutput()
	if err != nil {
		s.t.Fatalf("OPERATIONS.md, line %d: %v\n%s", block.Line, err, out)
	}
	return string(out)
}

func operationsBlocks(t *testing.T) []docs.Block {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(rootDir, "OPERATIONS.md"))
	if err != nil {
		t.Fatal(err)
	}
	blocks, err := docs.Blocks(string(text))
	if err != nil {
		t.Fatal(err)
	}
	return blocks
}

// Tests run every block of OPERATIONS.md except those with a reason why not.
func TestRunbook_BlocksAreRun(t *testing.T) {
	t.Parallel()
	for _, block := range operationsBlocks(t) {
		run := []string{"Back up", "Restore", "Back up the log", "Restore to a point in time", "Hold emails that may be sent twice", "What came after the dump", "Capacity"}
		if block.NotRun == "" && !slices.Contains(run, block.Section) {
			t.Errorf("OPERATIONS.md, line %d: no test runs the block below %q", block.Line, block.Section)
		}
	}
}

// Every gatewayctl command in OPERATIONS.md exists, with its flags.
func TestRunbook_Commands(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join(rootDir, "OPERATIONS.md"))
	if err != nil {
		t.Fatal(err)
	}
	// Inline, or a line of a block, with two spaces before its description.
	found := regexp.MustCompile("(?m)(?:^|`)gatewayctl ([a-z][^`\n]*?)(?:`|  |$)").FindAllStringSubmatch(string(text), -1)
	if len(found) < 10 {
		t.Errorf("only %d commands", len(found))
	}
	tried := map[string]bool{}
	for _, command := range found {
		words := strings.Fields(command[1])
		if tried[command[1]] {
			continue
		}
		tried[command[1]] = true
		named := words[:wordsBefore(words)]
		out, err := exec.CommandContext(t.Context(), filepath.Join(binDir, "gatewayctl"), slices.Concat(named, []string{"--help"})...).CombinedOutput()
		// gatewayctl prints the help of the group for an unknown command of it.
		usage := "  gatewayctl " + strings.Join(named, " ") + " "
		if err != nil || !strings.Contains(string(out), "\nUsage:\n"+usage) {
			t.Errorf("there is no command gatewayctl %s: %v", strings.Join(named, " "), err)
			continue
		}
		for _, word := range words[len(named):] {
			if strings.HasPrefix(word, "--") && !regexp.MustCompile(`(?m)^ +(-\w, )?`+word+`\b`).Match(out) {
				t.Errorf("gatewayctl %s has no %s", strings.Join(named, " "), word)
			}
		}
	}
}

// wordsBefore counts the words before the first argument or flag.
func wordsBefore(words []string) int {
	for i, word := range words {
		if strings.HasPrefix(word, "-") || strings.HasPrefix(word, "<") {
			return i
		}
	}
	return len(words)
}

// The broker knows every command for RabbitMQ in the documents.
func TestRunbook_BrokerCommands(t *testing.T) {
	t.Parallel()
	const programs = "/usr/lib/rabbitmq/bin" // those in PATH need another account
	if _, err := os.Stat(programs); err != nil {
		t.Fatal("scripts/services.sh installs RabbitMQ: ", err)
	}
	files, err := docs.Files(rootDir)
	if err != nil {
		t.Fatal(err)
	}
	tried := map[string]bool{}
	for _, file := range files {
		text, err := os.ReadFile(filepath.Join(rootDir, file))
		if err != nil {
			t.Fatal(err)
		}
		for _, command := range regexp.MustCompile(`\b(rabbitmq(?:ctl|-[a-z]+)) ([a-z]+(?:_[a-z]+)*)\b`).FindAllStringSubmatch(string(text), -1) {
			program, name := command[1], command[2]
			if tried[command[0]] || !slices.Contains([]string{"rabbitmqctl", "rabbitmq-diagnostics", "rabbitmq-queues"}, program) {
				continue
			}
			tried[command[0]] = true
			help := exec.CommandContext(t.Context(), filepath.Join(programs, program), "help", name)
			help.Env = append(os.Environ(), "HOME="+t.TempDir(), "LC_ALL=C.UTF-8")
			if out, err := help.CombinedOutput(); err != nil || !strings.Contains(string(out), name) {
				t.Errorf("%s: there is no command %s: %v\n%s", file, command[0], err, out)
			}
		}
	}
	if len(tried) < 3 {
		t.Errorf("only %d commands: %v", len(tried), tried)
	}
}
