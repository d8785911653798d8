package observability_test

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/google/go-cmp/cmp"

	"email-gateway/scripts/observability"
)

const root = "../.."

// Every alert is complete, and has a section in OPERATIONS.md; every section there has an alert.
func TestAlerts(t *testing.T) {
	t.Parallel()
	alerts, err := observability.Alerts(".")
	if err != nil {
		t.Fatal(err)
	}
	if len(alerts) < 20 {
		t.Errorf("only %d alerts", len(alerts))
	}
	text, err := os.ReadFile(filepath.Join(root, "OPERATIONS.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), "\n## Alerts\n")
	section, _, _ = strings.Cut(section, "\n## ")
	tried, err := os.ReadFile("prometheus/rules_test.yml")
	if err != nil {
		t.Fatal(err)
	}
	var pages []string
	for _, heading := range regexp.MustCompile(`(?m)^### (\w+)\n\n\S`).FindAllStringSubmatch(section, -1) {
		pages = append(pages, heading[1])
	}
	var names []string
	for _, a := range alerts {
		names = append(names, a.Alert)
		if err := a.Check(); err != nil {
			t.Error(err)
		}
		// Otherwise one installation would hide the outages of another one.
		for _, taken := range regexp.MustCompile(`\b(sum|max|min|count|avg|group)\b(?: by \(([^)]*)\))?`).FindAllStringSubmatch(a.Expr, -1) {
			if !strings.HasPrefix(taken[2], "installation") {
				t.Errorf("%s: %s is not by installation", a.Alert, taken[0])
			}
		}
		// GitHub's anchors are in lower case.
		if want := "OPERATIONS.md#" + strings.ToLower(a.Alert); a.Annotations["runbook"] != want {
			t.Errorf("%s: its runbook is %q, want %q", a.Alert, a.Annotations["runbook"], want)
		}
		if !strings.Contains(string(tried), fmt.Sprintf("{alertname=%q}", a.Alert)) {
			t.Errorf("%s: nothing in rules_test.yml makes it fire", a.Alert)
		}
	}
	if diff := cmp.Diff(names, pages); diff != "" {
		t.Errorf("alerts (-) and sections of OPERATIONS.md (+), in order:\n%s", diff)
	}
	for _, link := range regexp.MustCompile(`\]\(#(\w+)\)`).FindAllStringSubmatch(section, -1) {
		if !slices.ContainsFunc(names, func(name string) bool { return strings.ToLower(name) == link[1] }) {
			t.Errorf("OPERATIONS.md links to #%s, which is no alert", link[1])
		}
	}
	// The required alerts.
	for _, name := range []string{"EmailsFailing", "RetriesHigh", "EmailsDueTooLong", "DeadLettersGrow", "MailingJobsDead", "QuotaNearlySpent", "ProviderCircuitBreakerOpen", "WorkerAbsent"} {
		if !slices.Contains(names, name) {
			t.Errorf("there is no alert %s", name)
		}
	}
}

// The dashboard shows one installation at a time: panels of several would compare numbers of different ones.
func TestPanels_Installation(t *testing.T) {
	t.Parallel()
	panels, err := observability.Panels(".")
	if err != nil {
		t.Fatal(err)
	}
	one := observability.Matcher{Label: "installation", Operator: "=", Value: "$installation"}
	for _, q := range panels {
		selectors, err := q.Selectors()
		if err != nil {
			t.Error(err)
		}
		for _, s := range selectors {
			if !slices.Contains(s.Matchers, one) {
				t.Errorf("%s: %s is not of one installation: add %s%s%q", q.Where, s.Metric, one.Label, one.Operator, one.Value)
			}
		}
	}
}

// Alerts and panels use existing metrics and labels, and each of the first eight metrics is shown.
func TestQueries(t *testing.T) {
	t.Parallel()
	described, err := observability.Described(root)
	if err != nil {
		t.Fatal(err)
	}
	asked := map[string]bool{}
	for _, q := range queries(t) {
		selectors, err := q.Selectors()
		if err != nil {
			t.Error(err)
		}
		for _, s := range selectors {
			asked[s.Metric] = true
			if err := observability.Known(described, s); err != nil {
				t.Errorf("%s: %v", q.Where, err)
			}
		}
	}
	for _, name := range []string{
		"mailing_emails_total", "mailing_processing_duration_seconds", "mailing_queue_size", "mailing_queue_consumer_count", "mailing_outbox_pending_count", "mailing_outbox_publish_duration_seconds",
		"mailing_api_requests_total", "mailing_api_request_duration_seconds", "pipeline_state_transitions_total",
		"pipeline_validation_failures_total", "pipeline_processing_duration_seconds", "pipeline_retry_total", "pipeline_final_state_total",
	} {
		if !asked[name] {
			t.Errorf("neither an alert nor a panel shows %s", name)
		}
	}
}

func queries(t *testing.T) []observability.Query {
	t.Helper()
	panels, err := observability.Panels(".")
	if err != nil {
		t.Fatal(err)
	}
	alerts, err := observability.Alerts(".")
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range alerts {
		panels = append(panels, a.Query())
	}
	return panels
}

func TestSelectors(t *testing.T) {
	t.Parallel()
	q := observability.Query{Where: "here", Expr: `
		sum by (queue) (rate(a_total{state="FAILED", x!~"y.*",}[$__rate_interval])) / max(b) by (kind) > 0.05e1
		and histogram_quantile(0.99, sum by (le, path) (rate(c_seconds_bucket[1h30m] offset 5m))) - -1 < 3 or absent(up{job="w"} == 1)
		unless on () (d == 1)`}
	got, err := q.Selectors()
	if err != nil {
		t.Fatal(err)
	}
	want := []observability.Selector{
		{Metric: "a_total", Grouped: []string{"queue"}, Matchers: []observability.Matcher{{"state", "=", "FAILED"}, {"x", "!~", "y.*"}}},
		{Metric: "b", Grouped: []string{"kind"}},
		{Metric: "c_seconds", Grouped: []string{"path"}},
		{Metric: "up", Matchers: []observability.Matcher{{"job", "=", "w"}}},
		{Metric: "d"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	// MetricsQL allows more than PromQL, such as rate(a): promtool checks the alerts in check.sh.
	for _, wrong := range []string{
		``, `1`, `a b`, `sum(a`, `sum(a))`, `sum by queue (a)`, `a{b}`, `a{b="c}`, `a{b=c}`, `a{b=~"("}`,
		`a[5m`, `ratio(a)`, `a > `, `a offset b`, `max by (a b) (c)`, `a and on b`,
	} {
		if _, err := (observability.Query{Where: "here", Expr: wrong}).Selectors(); err == nil || !strings.HasPrefix(err.Error(), "here: ") {
			t.Errorf("%q: %v", wrong, err)
		}
	}
}

func TestKnown(t *testing.T) {
	t.Parallel()
	described := map[string]observability.Metric{"a": {Labels: []string{"queue"}}}
	for expr, known := range map[string]bool{
		`a{queue="x"}`: true, `sum by (queue, job) (a)`: true, `up`: true, `process_cpu_seconds_total`: true,
		`b`: false, `a{kind="x"}`: false, `sum by (kind) (a)`: false,
	} {
		selectors, err := observability.Query{Expr: expr}.Selectors()
		if err != nil {
			t.Fatal(err)
		}
		if err := observability.Known(described, selectors[0]); (err == nil) != known {
			t.Errorf("%s: %v", expr, err)
		}
	}
}

// Compose starts Prometheus, Grafana and Jaeger only with the profile, mounts the files of this
// folder, and Prometheus scrapes the programs' ports.
func TestCompose(t *testing.T) {
	t.Parallel()
	var compose struct {
		Services map[string]struct {
			Profiles    []string
			Image       string
			Volumes     []string
			Environment map[string]string
		}
		Volumes map[string]any
	}
	read(t, filepath.Join(root, "docker-compose.yml"), &compose)
	var optional []string
	for name, s := range compose.Services {
		if slices.Equal(s.Profiles, []string{"observability"}) {
			optional = append(optional, name)
		}
		for _, v := range s.Volumes {
			from, _, _ := strings.Cut(v, ":")
			if _, known := compose.Volumes[from]; known {
				continue
			}
			if _, err := os.Stat(filepath.Join(root, from)); err != nil {
				t.Errorf("%s mounts %s: %v", name, from, err)
			}
		}
	}
	slices.Sort(optional)
	if want := []string{"grafana", "jaeger", "prometheus"}; !slices.Equal(optional, want) {
		t.Errorf("the profile has %v, want %v", optional, want)
	}
	var prometheus struct {
		Scrape []struct {
			Job string `yaml:"job_name"`
			DNS []struct {
				Names []string
				Port  string
			} `yaml:"dns_sd_configs"`
		} `yaml:"scrape_configs"`
		Rules []string `yaml:"rule_files"`
	}
	read(t, "prometheus/prometheus.yml", &prometheus)
	scraped := map[string]string{}
	for _, s := range prometheus.Scrape {
		for _, d := range s.DNS {
			scraped[s.Job] = d.Names[0] + ":" + d.Port
		}
	}
	listening := map[string]string{}
	for name, variable := range map[string]string{"api": "METRICS_ADDR", "dispatcher": "DISPATCHER_ADDR", "worker": "WORKER_ADDR"} {
		_, port, _ := strings.Cut(compose.Services[name].Environment[variable], ":")
		listening["email-gateway-"+name] = name + ":" + port
	}
	if diff := cmp.Diff(listening, scraped); diff != "" {
		t.Errorf("listening (-) and scraped (+)\n%s", diff)
	}
	if !slices.Equal(prometheus.Rules, []string{"rules.yml"}) {
		t.Errorf("rule files %v", prometheus.Rules)
	}
	for _, q := range queries(t) {
		selectors, err := q.Selectors()
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range selectors {
			for _, m := range s.Matchers {
				if m.Label == "job" && !slices.ContainsFunc(slices.Collect(maps.Keys(scraped)), m.Matches) {
					t.Errorf("%s: nothing is scraped as job %s", q.Where, m.Value)
				}
			}
		}
	}
}

// Grafana has Prometheus under the name that the panels use.
func TestProvisioning(t *testing.T) {
	t.Parallel()
	var sources struct {
		Datasources []struct{ UID, Type, URL string }
	}
	read(t, "grafana/provisioning/datasources/prometheus.yml", &sources)
	if len(sources.Datasources) != 1 || sources.Datasources[0].UID != observability.DatasourceUID ||
		sources.Datasources[0].Type != "prometheus" || sources.Datasources[0].URL != "http://prometheus:9090" {
		t.Errorf("data sources %+v", sources.Datasources)
	}
	var boards struct {
		Providers []struct {
			Type    string
			Options struct{ Path string }
		}
	}
	read(t, "grafana/provisioning/dashboards/email-gateway.yml", &boards)
	if len(boards.Providers) != 1 || boards.Providers[0].Type != "file" || boards.Providers[0].Options.Path != "/var/lib/grafana-dashboards" {
		t.Errorf("providers %+v", boards.Providers)
	}
}

func read(t *testing.T, file string, into any) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	// A key over a merged one is no duplicate, but the library takes it for one.
	if err := yaml.UnmarshalWithOptions(text, into, yaml.AllowDuplicateMapKey()); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
}
