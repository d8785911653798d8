package docs_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"email-gateway/scripts/docs"
)

const root = "../.."

func TestLinks_LeadSomewhere(t *testing.T) {
	t.Parallel()
	files, err := docs.Files(root)
	if err != nil {
		t.Fatal(err)
	}
	for _, needed := range []string{"README.md", "OPERATIONS.md", "worker/README.md"} {
		if !slices.Contains(files, needed) {
			t.Errorf("%s is not among %v", needed, files)
		}
	}
	for _, file := range files {
		broken, err := docs.BrokenLinks(root, file)
		if err != nil {
			t.Error(err)
		}
		for _, link := range broken {
			t.Error(link)
		}
	}
}

// The translation has exactly the same commands and marks.
func TestTranslation_HasTheSameCommands(t *testing.T) {
	t.Parallel()
	if diff := cmp.Diff(commands(t, "README.md"), commands(t, "README.pt-BR.md")); diff != "" {
		t.Errorf("README.pt-BR.md differs from README.md (-want +got)\n%s", diff)
	}
}

func commands(t *testing.T, file string) []docs.Block {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, file))
	if err != nil {
		t.Fatal(err)
	}
	blocks, err := docs.Blocks(string(text))
	if err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	for i := range blocks {
		b := &blocks[i]
		b.Line, b.Section = 0, ""
		if b.NotRun != "" {
			b.NotRun = "for a reason"
		}
	}
	return blocks
}

func TestBrokenLinks(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "sub"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"there.md": "# One `x_y`: two, [three](there.md)\n\n## Ação\n\n## Ação\n",
		"sub/a.md": strings.Join([]string{
			"[ok](../there.md#one-x_y-two-three) [ok](../there.md#ação-1) [`ok`](../there.md) [ok](#here) [ok](https://example.com/nowhere)",
			"[gone](gone.md), [no heading](../there.md#two), [out](../../etc/passwd), `[not](a-link.md)`",
			"```", "[not](a-link-either.md)", "# not a heading", "```", "# Here", "[`code`](#not-a-heading)",
		}, "\n"),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	got, err := docs.BrokenLinks(dir, "sub/a.md")
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"sub/a.md:2: gone.md: there is no such file",
		"sub/a.md:2: ../there.md#two: there.md has no such heading",
		"sub/a.md:2: ../../etc/passwd: leads out of the checkout",
		"sub/a.md:8: #not-a-heading: sub/a.md has no such heading",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func TestBlocks(t *testing.T) {
	t.Parallel()
	got, err := docs.Blocks(strings.Join([]string{
		"# One", "```", "no shell", "```", "```sh", "a", "# a comment", "```",
		"## Two", "<!-- not run: takes twenty minutes -->", "```sh", "b", "```",
		"<!-- stays until Ctrl-C -->", "```sh", "c", "```",
		"1. a list", "", "   <!-- not run: takes twenty minutes -->", "   ```sh", "   d", "   ```",
	}, "\n"))
	want := []docs.Block{
		{Line: 5, Section: "One", Text: "a\n# a comment\n"},
		{Line: 11, Section: "Two", Text: "b\n", NotRun: "takes twenty minutes"},
		{Line: 15, Section: "Two", Text: "c\n", Stays: true},
		{Line: 21, Section: "Two", Text: "   d\n", NotRun: "takes twenty minutes"},
	}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("%v (-want +got)\n%s", err, diff)
	}
	for _, bad := range []string{
		"<!-- not run: slow -->\n```sh\na\n```", "<!-- not run: -->\n```sh\na\n```",
		"<!-- not run: takes twenty minutes -->\n\n```sh\na\n```", "```sh\na\n",
	} {
		if blocks, err := docs.Blocks(bad); err == nil {
			t.Errorf("%q is %v", bad, blocks)
		}
	}
}
