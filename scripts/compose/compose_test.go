// Package compose_test checks docker-compose.yml without a container engine;
// scripts/compose-smoke.sh tests it on one.
package compose_test

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"
)

const file = "../../docker-compose.yml"

type service struct {
	Image       string
	PullPolicy  string `yaml:"pull_policy"`
	Build       *struct{ Dockerfile string }
	User        string
	CapDrop     []string `yaml:"cap_drop"`
	CapAdd      []string `yaml:"cap_add"`
	SecurityOpt []string `yaml:"security_opt"`
	Environment map[string]string
	EnvFile     []any `yaml:"env_file"`
	Ports       []string
	StopGrace   string `yaml:"stop_grace_period"`
	Logging     struct{ Options map[string]string }
	Healthcheck struct{ Interval string }
	Volumes     []string
}

func services(t *testing.T) map[string]service {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var compose struct{ Services map[string]service }
	// A key over a merged one is no duplicate, but the library takes it for one.
	if err := yaml.UnmarshalWithOptions(text, &compose, yaml.AllowDuplicateMapKey()); err != nil {
		t.Fatal(err)
	}
	if len(compose.Services) < 10 {
		t.Fatalf("only %d services", len(compose.Services))
	}
	return compose.Services
}

// No container has a capability or can gain one, and every log is limited.
func TestCompose_Hardened(t *testing.T) {
	t.Parallel()
	for name, s := range services(t) {
		if !slices.Equal(s.CapDrop, []string{"ALL"}) || len(s.CapAdd) > 0 {
			t.Errorf("%s drops the capabilities %v and adds %v", name, s.CapDrop, s.CapAdd)
		}
		if !slices.Contains(s.SecurityOpt, "no-new-privileges:true") {
			t.Errorf("%s may gain privileges", name)
		}
		if s.Logging.Options["max-size"] == "" || s.Logging.Options["max-file"] == "" {
			t.Errorf("the log of %s is unlimited", name)
		}
	}
	// Their entrypoints change the owner of files as root, unless they start as another user.
	for name, user := range map[string]string{"postgres": "postgres", "redis": "redis", "rabbitmq": "rabbitmq"} {
		if got := services(t)[name].User; got != user {
			t.Errorf("%s starts as %q, want %q", name, got, user)
		}
	}
}

// Two builds of one tag fail in a containerd image store. A service that uses an image of another
// service's build must not try to pull it.
func TestCompose_EachTagIsBuiltOnce(t *testing.T) {
	t.Parallel()
	all := services(t)
	builder := map[string]string{}
	for name, s := range all {
		if s.Build == nil || s.Image == "" {
			continue
		}
		if other := builder[s.Image]; other != "" {
			t.Errorf("%s and %s build %s", name, other, s.Image)
		}
		builder[s.Image] = name
	}
	for name, s := range all {
		if s.Build == nil && builder[s.Image] != "" && s.PullPolicy != "never" {
			t.Errorf("%s would pull %s, which %s builds", name, s.Image, builder[s.Image])
		}
	}
}

// After SIGTERM a program exits before the engine kills it, even with the longest DRAIN_DELAY that
// docker-compose.yml allows without a longer stop_grace_period.
func TestCompose_StopGrace(t *testing.T) {
	t.Parallel()
	const longestDrain = 10 * time.Second
	all := services(t)
	for name, file := range map[string]string{
		"api": "../../api/cmd/api/main.go", "dispatcher": "../../worker/cmd/dispatcher/main.go", "worker": "../../worker/cmd/worker/main.go",
	} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		grace := regexp.MustCompile(`(?m)\bgrace += (\d+) \* time\.Second$`).FindSubmatch(text)
		if grace == nil {
			t.Errorf("%s has no constant grace in seconds", file)
			continue
		}
		own, err := time.ParseDuration(string(grace[1]) + "s")
		if err != nil {
			t.Fatal(err)
		}
		if given, err := time.ParseDuration(all[name].StopGrace); err != nil || given < own+longestDrain {
			t.Errorf("stop_grace_period of %s is %s (%v), want at least %s", name, all[name].StopGrace, err, own+longestDrain)
		}
	}
}

// Ports are published on loopback only, and scaled programs need no common port.
func TestCompose_Ports(t *testing.T) {
	t.Parallel()
	all := services(t)
	for name, s := range all {
		for _, port := range s.Ports {
			if !strings.HasPrefix(port, "127.0.0.1:") {
				t.Errorf("%s is published to the network: %s", name, port)
			}
		}
	}
	// The api has a fixed port, which the engine chooses with API_PORT=0; the engine chooses those
	// of others by default.
	for name, scalable := range map[string]*regexp.Regexp{
		"api":        regexp.MustCompile(`^127\.0\.0\.1:\$\{API_PORT:-\d+\}:\d+$`),
		"dispatcher": regexp.MustCompile(`^127\.0\.0\.1:\$\{DISPATCHER_PORT:-0\}:\d+$`),
		"worker":     regexp.MustCompile(`^127\.0\.0\.1:\$\{WORKER_PORT:-0\}:\d+$`),
	} {
		for _, port := range all[name].Ports {
			if !scalable.MatchString(port) {
				t.Errorf("%s cannot be scaled: it publishes %s", name, port)
			}
		}
	}
}

// Each check of RabbitMQ starts an Erlang machine.
func TestCompose_RabbitMQIsCheckedSeldom(t *testing.T) {
	t.Parallel()
	interval := services(t)["rabbitmq"].Healthcheck.Interval
	if d, err := time.ParseDuration(interval); err != nil || d < 30*time.Second {
		t.Errorf("the health check runs every %s, want 30s or more (%v)", interval, err)
	}
}

// A mount over Grafana's provisioning folder hides the image's plugins and alerting.
func TestCompose_GrafanaKeepsItsProvisioning(t *testing.T) {
	t.Parallel()
	grafana := services(t)["grafana"]
	if len(grafana.Volumes) == 0 {
		t.Fatal("grafana has no volumes")
	}
	for _, v := range grafana.Volumes {
		target := strings.TrimSuffix(strings.Split(v, ":")[1], "/")
		if target == "/etc/grafana/provisioning" || strings.HasPrefix("/etc/grafana/provisioning", target+"/") {
			t.Errorf("grafana mounts %s", v)
		}
	}
}

// ENVIRONMENT=production docker compose up applies to every program, also without a .env.
func TestCompose_Environment(t *testing.T) {
	t.Parallel()
	all := services(t)
	for _, name := range []string{"migrate", "api", "gatewayctl", "dispatcher", "worker"} {
		if got := all[name].Environment["ENVIRONMENT"]; got != "${ENVIRONMENT:-development}" {
			t.Errorf("%s: ENVIRONMENT is %q", name, got)
		}
	}
}

// The worker refuses ENVIRONMENT=production without AWS_REGION: with a default here, the worker would send through it.
func TestCompose_NoRegionByDefault(t *testing.T) {
	t.Parallel()
	for name, s := range services(t) {
		if got, set := s.Environment["AWS_REGION"]; set && got != "${AWS_REGION-}" {
			t.Errorf("%s: AWS_REGION is %q", name, got)
		}
	}
}

// Programs connect as their roles, and get only their own password.
func TestCompose_Roles(t *testing.T) {
	t.Parallel()
	all := services(t)
	passwords := []string{"POSTGRES_PASSWORD"}
	for name := range all["migrate"].Environment {
		if strings.HasPrefix(name, "GATEWAY_") && strings.HasSuffix(name, "_PASSWORD") {
			passwords = append(passwords, name)
		}
	}
	if len(passwords) != 6 {
		t.Errorf("migrate sets %v", passwords)
	}
	for name, role := range map[string]string{
		"api": "gateway_api", "dispatcher": "gateway_dispatcher", "worker": "gateway_worker", "gatewayctl": "gateway_operator",
	} {
		env := all[name].Environment
		if want := "${" + strings.ToUpper(role) + "_PASSWORD:-gateway}"; env["PGUSER"] != role || env["PGPASSWORD"] != want {
			t.Errorf("%s connects as %s with %s", name, env["PGUSER"], env["PGPASSWORD"])
		}
		if strings.Contains(env["DATABASE_URL"], "@") {
			t.Errorf("%s has a user in %s", name, env["DATABASE_URL"])
		}
	}
	for name, s := range all {
		if name == "migrate" || name == "postgres" { // which set them
			continue
		}
		for variable, value := range s.Environment {
			for _, password := range passwords {
				if variable != "PGPASSWORD" && strings.Contains(value, password) {
					t.Errorf("%s gets %s as %s", name, password, variable)
				}
			}
		}
		for _, password := range passwords {
			if value, set := s.Environment[password]; value != "" || !set && len(s.EnvFile) > 0 {
				t.Errorf("%s gets %s", name, password)
			}
		}
	}
	if key := all["api"].Environment["AWS_ACCESS_KEY_ID"]; !strings.HasPrefix(key, "${AWS_ACCESS_KEY_ID-") {
		t.Errorf("an empty AWS_ACCESS_KEY_ID does not leave the choice to the machine's role: %s", key)
	}
}
