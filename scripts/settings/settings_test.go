package settings_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"email-gateway/scripts/settings"
)

const root = "../.."

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, path))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func programs(t *testing.T) []settings.Program {
	t.Helper()
	all, err := settings.Programs(root)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func TestTable_StandsInReadme(t *testing.T) {
	t.Parallel()
	text := read(t, "CONFIGURATION.md")
	want, err := settings.Insert(text, settings.Table(programs(t)))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, text); diff != "" {
		t.Errorf("CONFIGURATION.md is out of date: go run ./scripts/cmd/settings (-want +got)\n%s", diff)
	}
}

// .env.example has every setting of the programs with its default, and otherwise only variables of
// gatewayctl, compose and the scripts.
func TestExample_HasTheSettings(t *testing.T) {
	t.Parallel()
	text := read(t, ".env.example")
	shown := map[string]string{}
	for _, line := range regexp.MustCompile(`(?m)^#?([A-Z][A-Z0-9_]*)=(.*)$`).FindAllStringSubmatch(text, -1) {
		if _, twice := shown[line[1]]; twice {
			t.Errorf("%s is in .env.example twice", line[1])
		}
		shown[line[1]] = line[2]
	}
	all := programs(t)
	for _, p := range all {
		for _, s := range p.Settings {
			value, there := shown[s.Name]
			// Required settings, and those without a default, may have an example value.
			if !there || s.Default != "" && value != s.Default {
				t.Errorf(".env.example has %s=%s (there: %v), %s's default is %q", s.Name, value, there, p.Name, s.Default)
			}
		}
	}
	for _, name := range settings.Names(all) {
		delete(shown, name)
	}
	read := elsewhere(t, inGo, regexp.MustCompile(`\$\{?!?([A-Z][A-Z0-9_]+)\b`))
	for name := range shown {
		if !read[name] {
			t.Errorf(".env.example has %s, which nothing reads", name)
		}
	}
	for name := range elsewhere(t, inGo, regexp.MustCompile(`\$\{([A-Z][A-Z0-9_]+):?-`)) {
		if !strings.Contains(text, "#"+name+"=") && !notSettings[name] {
			t.Errorf(".env.example does not have %s, which something reads", name)
		}
	}
}

// notSettings are variables of the system or of tests, which do not configure the gateway.
var notSettings = map[string]bool{
	"HOME": true, "PATH": true, "USER": true, "SUDO_USER": true, "TERM": true, "TMPDIR": true, "GOFLAGS": true, "GOGC": true, "GOMEMLIMIT": true, "GORACE": true,
	"AWS_ACCESS_KEY_ID": true, "AWS_SECRET_ACCESS_KEY": true, // the AWS SDK's own
	"COMPOSE_PROJECT_NAME": true, // Docker Compose's own
	"PGPASSWORD":           true, // the database driver's own
	"CRASH_AT":             true, "CRASH_WITH": true, "E2E_RACE": true, "NAIVE_ADDR": true, "LISTENING_ADDR": true,
	"DISPATCHER_FROZEN": true, "LOCK_HOLD": true, "MAILING_ROWS": true, "REPLAY_EMAILS": true, "SEARCH_MILLION": true, // the READMEs show commands with them
	"TLS_DIR": true, "SERVICES_BASE": true, "RABBITMQ_EPMD_PORT": true, "CLUSTERS": true, "STANDBY_SYNC": true, // services.sh, clusters.sh and test-clusters.sh, for tests
}

// inGo matches calls of Getenv and LookupEnv. It begins with a literal, which is searched for many times as fast.
var inGo = regexp.MustCompile(`nv\("([A-Z][A-Z0-9_]+)"\)`)

// elsewhere returns the variables that are read individually: in Go, or in shell and compose.
func elsewhere(t *testing.T, inGo, inShell *regexp.Regexp) map[string]bool {
	t.Helper()
	found := map[string]bool{}
	err := filepath.WalkDir(root, func(path string, entry os.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && (entry.Name() == ".git" || entry.Name() == ".local"):
			return filepath.SkipDir
		case entry.IsDir():
			return nil
		}
		pattern := inGo
		switch filepath.Ext(path) {
		case ".go":
		case ".sh", ".yml":
			pattern = inShell
		default:
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for _, match := range pattern.FindAllStringSubmatch(string(text), -1) {
			found[match[1]] = true
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func TestPrograms_WantAComment(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "api/internal/config/config.go")
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte("package config\n\ntype Config struct {\n\tAddr string `env:\"API_ADDR\"`\n}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := settings.Programs(dir); err == nil || !strings.Contains(err.Error(), "API_ADDR") {
		t.Errorf("a setting without a comment: %v", err)
	}
}

func TestTable_SaysWhoReadsWhat(t *testing.T) {
	t.Parallel()
	got := settings.Table([]settings.Program{
		{Name: "api", Settings: []settings.Setting{{Name: "A_URL", Required: true, Meaning: "Where it is: s3://bucket|file."}, {Name: "B", Meaning: "One thing."}}},
		{Name: "worker", Settings: []settings.Setting{{Name: "B", Default: "3", Meaning: "Another, beside A_URL."}}},
	})
	want := "| variable | read by | default | meaning |\n|---|---|---|---|\n" +
		"| `A_URL` | api | **required** | Where it is: `s3://bucket\\|file`. |\n" +
		"| `B` | all | *api:* –; *worker:* `3` | *api:* One thing. *worker:* Another, beside `A_URL`. |\n"
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}
