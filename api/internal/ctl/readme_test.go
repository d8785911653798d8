package ctl_test

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"email-gateway/api/internal/ctl"
)

// api/README.md lists every command exactly once, and no others.
func TestReadme_ListsEveryCommand(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, found := strings.Cut(string(text), "\n## gatewayctl\n")
	if !found {
		t.Fatal("README.md has no section about gatewayctl")
	}
	section, _, _ = strings.Cut(section, "\n## ")
	var listed []string
	for _, cell := range regexp.MustCompile("(?m)^\\| (`[^|]*`) \\| (?:operator|tenant|both) \\|").FindAllStringSubmatch(section, -1) {
		for _, command := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(cell[1], -1) {
			listed = append(listed, command[1])
		}
	}
	slices.Sort(listed)
	commands := ctl.Commands()
	slices.Sort(commands)
	if diff := cmp.Diff(commands, listed); diff != "" {
		t.Errorf("README.md (-there is +listed):\n%s", diff)
	}
}
