package docs_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, file))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// The installation sets ENVIRONMENT to production, and names every setting that a program then requires.
func TestInstallation_NamesWhatProductionRequires(t *testing.T) {
	t.Parallel()
	_, section, _ := strings.Cut(read(t, "OPERATIONS.md"), "\n## Installation\n")
	section, _, _ = strings.Cut(section, "\n## ")
	if !strings.Contains(section, "Set `ENVIRONMENT=production`") {
		t.Error("no step sets ENVIRONMENT=production")
	}
	// f.Must(!environment.IsProduction(…) || …, "NAME", "is required …")
	required := regexp.MustCompile(`IsProduction\([^\n]*"([A-Z_]+)",\s*"is required`)
	found := 0
	for _, module := range []string{"api", "worker"} {
		files, err := filepath.Glob(filepath.Join(root, module, "internal/config/*.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			for _, check := range required.FindAllStringSubmatch(string(text), -1) {
				found++
				if _, after, named := strings.Cut(section, "`"+check[1]+"`"); !named || !strings.Contains(after, "required with `ENVIRONMENT=production`") {
					t.Errorf("the installation does not say that %s is required with ENVIRONMENT=production", check[1])
				}
			}
		}
	}
	if found == 0 {
		t.Error("no required setting was found in the programs")
	}
}

// The comment of each key and password in the secrets of .env.example has a command that generates it.
func TestExample_GeneratesTheSecrets(t *testing.T) {
	t.Parallel()
	_, section, _ := strings.Cut(read(t, ".env.example"), "# --- secrets ---")
	section, _, _ = strings.Cut(section, "\n# --- ")
	found := 0
	for _, group := range strings.Split(section, "\n\n") {
		for _, secret := range regexp.MustCompile(`(?m)^#([A-Z_]+_(?:KEYS?|PASSWORD))=`).FindAllStringSubmatch(group, -1) {
			found++
			if !strings.Contains(group, "head -c 32 /dev/urandom | base64") && !strings.Contains(group, "head -c 24 /dev/urandom | base64") {
				t.Errorf("no command in .env.example generates %s", secret[1])
			}
		}
	}
	if found < 4 {
		t.Errorf("only %d secrets", found)
	}
}
