package e2e_test

import (
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"email-gateway/scripts/sessim"
	"email-gateway/shared/servertest"
)

// metric is one as the programs show it, or as a README's table describes it.
type metric struct {
	Labels   []string
	Programs []string
}

// The tables of the READMEs name every metric of ours with its labels and programs, and
// nothing that does not exist.
func TestMetrics_AreThoseOfTheREADMEs(t *testing.T) {
	t.Parallel()
	s := startBusy(t)
	described := describedMetrics(t)
	var last map[string]map[string]*dto.MetricFamily
	eventually(t, 30*time.Second, func() error { // some are measured every ten seconds
		last = s.scrape()
		if diff := cmp.Diff(described, ours(last)); diff != "" {
			return fmt.Errorf("the READMEs' tables (-) and the programs (+) differ:\n%s", diff)
		}
		return nil
	})
	for _, families := range last {
		for name, family := range families {
			if isLibrarys(name) {
				continue
			}
			if family.GetHelp() == "" {
				t.Errorf("%s has no help", name)
			}
			checkLabelValues(t, s, family)
		}
	}
}

// ours are the metrics that no library brings.
func ours(families map[string]map[string]*dto.MetricFamily) map[string]metric {
	shown := map[string]metric{}
	for _, program := range slices.Sorted(maps.Keys(families)) {
		for name, family := range families[program] {
			if !isLibrarys(name) {
				m := shown[name]
				shown[name] = metric{Labels: labelsOf(family), Programs: append(m.Programs, program)}
			}
		}
	}
	return shown
}

// startBusy is a system in which everything that is counted has happened: an email sent
// and one refused, a mailing, a recipient, and the gate shut and open again.
func startBusy(t *testing.T) *system {
	t.Helper()
	rabbitmq := servertest.Start(t, "rabbitmq")
	s := startSystem(t, bulk(t, rabbitmq.URL))
	s.await(s.send("maria@cliente.example", nil), 20*time.Second, "SENT")
	s.await(s.send("maria+sim-bad-request@cliente.example", nil), 20*time.Second, "FAILED")
	s.awaitMailing(s.mail("clientes.csv", newSpreadsheet(t, 5), nil), time.Minute, "COMPLETED")
	if status, answer := s.call(http.MethodPost, "/v1/recipients", map[string]any{"externalId": "C-1", "email": "ana@cliente.example"}, nil); status != http.StatusAccepted {
		t.Fatalf("%d %s", status, answer)
	}
	s.set(func(st *sessim.Settings) { st.Paused = true })
	s.send("maria@cliente.example", nil)
	s.awaitShut("SES_ACCOUNT_SENDING_PAUSED")
	return s
}

// scrape asks each program for its metrics.
func (s *system) scrape() map[string]map[string]*dto.MetricFamily {
	s.t.Helper()
	programs := map[string]*program{"api": s.api, "dispatcher": s.dispatcher, "worker": s.worker}
	all := map[string]map[string]*dto.MetricFamily{}
	for name, p := range programs {
		_, text := fetch(s.t, "http://"+p.addr+"/metrics")
		parser := expfmt.NewTextParser(model.UTF8Validation)
		families, err := parser.TextToMetricFamilies(strings.NewReader(text))
		if err != nil {
			s.t.Fatalf("the metrics of %s: %v\n%s", name, err, text)
		}
		all[name] = families
	}
	return all
}

// isLibrarys finds the metrics of the Go runtime, the process, and the scrape itself.
func isLibrarys(name string) bool {
	for _, prefix := range []string{"go_", "process_", "promhttp_"} {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return false
}

func labelsOf(family *dto.MetricFamily) []string {
	names := map[string]bool{}
	for _, m := range family.GetMetric() {
		for _, l := range m.GetLabel() {
			names[l.GetName()] = true
		}
	}
	return slices.Sorted(maps.Keys(names))
}

var identifier = regexp.MustCompile(`@|[0-9a-f]{8}-[0-9a-f]{4}|(?i)acme|cliente|maria|\d{11}`)

// checkLabelValues wants no label that grows with tenants or their people.
func checkLabelValues(t *testing.T, s *system, family *dto.MetricFamily) {
	t.Helper()
	for _, m := range family.GetMetric() {
		for _, l := range m.GetLabel() {
			if identifier.MatchString(l.GetValue()) || strings.Contains(s.key, l.GetValue()) && len(l.GetValue()) > 8 {
				t.Errorf("%s has the label %s=%q", family.GetName(), l.GetName(), l.GetValue())
			}
		}
	}
}

var (
	metricRow = regexp.MustCompile("(?m)^\\| `([a-z_0-9]+)` \\| ([^|]*) \\| ((?:api|dispatcher|worker)(?:, (?:dispatcher|worker))*) \\|")
	quoted    = regexp.MustCompile("`([a-z_]+)`")
)

// describedMetrics are those of the tables in the READMEs of api and worker.
func describedMetrics(t *testing.T) map[string]metric {
	t.Helper()
	all := map[string]metric{}
	for _, file := range []string{"api/README.md", "worker/README.md"} {
		text, err := os.ReadFile(filepath.Join(rootDir, file))
		if err != nil {
			t.Fatal(err)
		}
		for _, row := range metricRow.FindAllStringSubmatch(strings.ReplaceAll(string(text), "| |", "|  |"), -1) {
			m := metric{Programs: strings.Split(row[3], ", ")}
			for _, label := range quoted.FindAllStringSubmatch(row[2], -1) {
				m.Labels = append(m.Labels, label[1])
			}
			slices.Sort(m.Labels)
			all[row[1]] = m
		}
	}
	if len(all) < 40 {
		t.Fatalf("only %d metrics found in the tables", len(all))
	}
	return all
}
