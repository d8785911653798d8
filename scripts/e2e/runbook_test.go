package e2e_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

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
