package e2e_test

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"email-gateway/scripts/observability"
	"email-gateway/scripts/sessim"
	"email-gateway/shared/servertest"
	"email-gateway/shared/telemetry/telemetrytest"
)

// Metrics, queries, alerts and dashboards of a gateway in which every counted event has happened.
func TestObservability(t *testing.T) {
	t.Parallel()
	collector := telemetrytest.Start(t)
	s := startBusy(t, collector.URL)
	t.Run("traces", func(t *testing.T) { checkTraces(t, s, collector) })
	t.Run("metrics", func(t *testing.T) { checkMetrics(t, s) })
	t.Run("logs", func(t *testing.T) { checkLogs(t, s) })
}

// checkMetrics compares the tables of the READMEs with the programs: they list every metric of the project with its
// labels and programs, and no other.
func checkMetrics(t *testing.T, s *system) {
	t.Helper()
	described, err := observability.Described(rootDir)
	if err != nil {
		t.Fatal(err)
	}
	selected := selectors(t)
	var last map[string]map[string]*dto.MetricFamily
	eventually(t, func() error { // some are measured every ten seconds
		last = scrape(s)
		if diff := cmp.Diff(described, ours(last)); diff != "" {
			return fmt.Errorf("the READMEs' tables (-) and the programs (+) differ:\n%s", diff)
		}
		return missingSeries(last, selected)
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

// promised are the series that operators rely on.
var promised = []string{
	// of emails, mailings and the api
	`mailing_emails_total{status="sent"}`, `mailing_emails_total{status="failed"}`, `mailing_processing_duration_seconds_count`,
	`mailing_queue_size{queue="main"}`, `mailing_queue_size{queue="retry"}`, `mailing_queue_size{queue="dlq"}`, `mailing_queue_consumer_count`,
	`mailing_outbox_pending_count`, `mailing_outbox_publish_duration_seconds_count`,
	`mailing_api_requests_total{method="POST", path="/v1/email/send", status="202"}`, `mailing_api_requests_total{path="/mailings"}`,
	`mailing_api_request_duration_seconds_count{method="POST", path="/v1/email/send"}`,
	// of the pipeline
	`pipeline_state_transitions_total{state="RECEIVED"}`, `pipeline_state_transitions_total{state="RETRY_SCHEDULED"}`,
	`pipeline_validation_failures_total{validation="INTEGRITY"}`, `pipeline_validation_failures_total{validation="OUTBOX"}`,
	`pipeline_validation_failures_total{validation="RECIPIENT"}`, `pipeline_validation_failures_total{validation="TEMPLATE"}`,
	`pipeline_processing_duration_seconds_count{state="SENT"}`, `pipeline_retry_total{category="QUOTA_ERROR"}`,
	`pipeline_final_state_total{state="SENT"}`, `pipeline_final_state_total{state="FAILED"}`,
	// queue age, oldest due row by kind of lane, window
	`queue_oldest_task_seconds{queue="email:send"}`, `outbox_oldest_due_seconds{queue="email:send", kind="single"}`,
	`outbox_oldest_due_seconds{queue="email:send:low", kind="mailing"}`, `queue_tasks{queue="email:send"}`, `queue_window_tasks{queue="email:send"}`,
	// unknown outcomes, rescues, circuit breaker, quota
	`outbox_outcome_unknown_count`, `pipeline_state_transitions_total{state="OUTCOME_UNKNOWN"}`, `outbox_rescued_total{reason="lease_ended"}`,
	`outbox_rescued_total{reason="lost"}`, `outbox_rescued_total{reason="unpublished"}`, `provider_circuit_breaker_open`, `provider_quota_left`, `provider_quota_limit`,
}

// selectors are the series that the alerts, the panels and operators select, by where they do.
func selectors(t *testing.T) map[string][]observability.Selector {
	t.Helper()
	dir := filepath.Join(rootDir, "scripts/observability")
	queries, err := observability.Panels(dir)
	if err != nil {
		t.Fatal(err)
	}
	alerts, err := observability.Alerts(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range alerts {
		queries = append(queries, a.Query())
	}
	for _, series := range promised {
		queries = append(queries, observability.Query{Where: "promised", Expr: series})
	}
	selected := make(map[string][]observability.Selector)
	for _, q := range queries {
		of, err := q.Selectors()
		if err != nil {
			t.Fatal(err)
		}
		selected[q.Where] = append(selected[q.Where], of...)
	}
	return selected
}

// missingSeries is an error if a selected series does not exist: a condition with an unknown label value is never true,
// and its alert never fires.
func missingSeries(families map[string]map[string]*dto.MetricFamily, selected map[string][]observability.Selector) error {
	var missing []error
	for where, of := range selected {
		for _, selector := range of {
			if selector.Metric != "up" && !anySeries(families, selector) {
				missing = append(missing, fmt.Errorf("%s: no series is %s%v", where, selector.Metric, selector.Matchers))
			}
		}
	}
	return errors.Join(missing...)
}

func anySeries(families map[string]map[string]*dto.MetricFamily, s observability.Selector) bool {
	for program, of := range families {
		for _, m := range of[s.Metric].GetMetric() {
			// Prometheus adds these. The dashboard selects the installation of its variable.
			labels := map[string]string{"job": "email-gateway-" + program, "instance": "", "installation": "$installation"}
			for _, l := range m.GetLabel() {
				labels[l.GetName()] = l.GetValue()
			}
			if !slices.ContainsFunc(s.Matchers, func(m observability.Matcher) bool { return !m.Matches(labels[m.Label]) }) {
				return true
			}
		}
	}
	return false
}

// ours are the metrics that no library defines.
func ours(families map[string]map[string]*dto.MetricFamily) map[string]observability.Metric {
	shown := map[string]observability.Metric{}
	for _, program := range slices.Sorted(maps.Keys(families)) {
		for name, family := range families[program] {
			if !isLibrarys(name) {
				m := shown[name]
				shown[name] = observability.Metric{Labels: labelsOf(family), Programs: append(m.Programs, program)}
			}
		}
	}
	return shown
}

// startBusy starts a system in which every counted event has happened: an email sent and one refused, a mailing, a
// recipient, a request answered 503, and the circuit breaker opened and sending paused.
func startBusy(t *testing.T, collector string) *system {
	t.Helper()
	env := bulk(t, brokerURL(t))
	env["OTEL_EXPORTER_OTLP_ENDPOINT"], env["OTEL_BSP_SCHEDULE_DELAY"] = collector, "500"
	env["SES_EVENTS_QUEUE"] = servertest.NewQueue(t, servertest.SharedSQS(t), nil).URL
	s := startSystem(t, env)
	tracedEmail(s, "maria@cliente.example")
	s.await(s.send("maria+sim-bad-request@cliente.example", nil), "FAILED")
	s.awaitMailing(s.mail("clientes.csv", newSpreadsheet(t, 5), nil), "COMPLETED")
	if status, answer := s.call(http.MethodPost, "/v1/recipients", map[string]any{"externalId": "C-1", "email": "ana@cliente.example"}, nil); status != http.StatusAccepted {
		t.Fatalf("%d %s", status, answer)
	}
	changeSettings(s.t, s.ses, func(st *sessim.Settings) { st.Paused = true })
	s.send("maria@cliente.example", nil)
	awaitOpened(s, "SES_ACCOUNT_SENDING_PAUSED")
	pauseAll(s)
	if status, _ := s.call(http.MethodPost, "/v1/ses/events", map[string]any{}, nil); status != http.StatusServiceUnavailable {
		t.Errorf("events of SES without a topic: %d, want 503", status)
	}
	return s
}

// scrape fetches the metrics of each program.
func scrape(s *system) map[string]map[string]*dto.MetricFamily {
	s.t.Helper()
	programs := map[string]*program{"api": s.api, "dispatcher": s.dispatcher, "worker": s.worker}
	all := map[string]map[string]*dto.MetricFamily{}
	for name, p := range programs {
		_, text := fetch(s.t, p.metricsURL())
		parser := expfmt.NewTextParser(model.UTF8Validation)
		families, err := parser.TextToMetricFamilies(strings.NewReader(text))
		if err != nil {
			s.t.Fatalf("the metrics of %s: %v\n%s", name, err, text)
		}
		all[name] = families
	}
	return all
}

// isLibrarys matches the metrics of the Go runtime, the process, and the scrape itself.
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

// checkLabelValues checks that no label grows with tenants or their recipients.
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
