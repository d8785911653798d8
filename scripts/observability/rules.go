package observability

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/VictoriaMetrics/metricsql"
	"github.com/goccy/go-yaml"
)

// Alert is one rule of prometheus/rules.yml.
type Alert struct {
	Alert       string            `yaml:"alert"`
	Expr        string            `yaml:"expr"`
	For         string            `yaml:"for"`
	Labels      map[string]string `yaml:"labels"`
	Annotations map[string]string `yaml:"annotations"`
}

// Query returns the alert's expression.
func (a Alert) Query() Query { return Query{"alert " + a.Alert, a.Expr} }

// Check returns all errors of the alert itself.
func (a Alert) Check() error {
	var faults []error
	must := func(ok bool, rule string) {
		if !ok {
			faults = append(faults, fmt.Errorf("alert %s: %s", a.Alert, rule))
		}
	}
	must(a.Alert != "", "has no name")
	must(a.Labels["severity"] == "critical" || a.Labels["severity"] == "warning", "severity must be critical or warning")
	for _, name := range []string{"summary", "description", "runbook"} {
		must(a.Annotations[name] != "", "has no "+name)
	}
	if a.For != "" {
		_, err := metricsql.PositiveDurationValue(a.For, 0)
		must(err == nil, "for must be a duration")
	}
	_, err := a.Query().Selectors()
	return errors.Join(append(faults, err)...)
}

// Alerts reads prometheus/rules.yml in dir, this package's folder. An unknown field is an error, as
// in Prometheus.
func Alerts(dir string) ([]Alert, error) {
	var file struct {
		Groups []struct {
			Name  string  `yaml:"name"`
			Rules []Alert `yaml:"rules"`
		} `yaml:"groups"`
	}
	text, err := os.ReadFile(filepath.Join(dir, "prometheus", "rules.yml"))
	if err != nil {
		return nil, fmt.Errorf("read rules: %w", err)
	}
	if err := yaml.UnmarshalWithOptions(text, &file, yaml.Strict()); err != nil {
		return nil, fmt.Errorf("read rules: %w", err)
	}
	var all []Alert
	for _, g := range file.Groups {
		if g.Name == "" {
			return nil, errors.New("read rules: a group has no name")
		}
		all = append(all, g.Rules...)
	}
	return all, nil
}

// Panels returns the queries of grafana/dashboards/email-gateway.json in dir.
func Panels(dir string) ([]Query, error) {
	var board struct {
		Panels []struct {
			Title   string `json:"title"`
			Type    string `json:"type"`
			Targets []struct {
				Expr       string `json:"expr"`
				Datasource struct {
					UID string `json:"uid"`
				} `json:"datasource"`
			} `json:"targets"`
		} `json:"panels"`
		Templating struct {
			List []struct {
				Name string `json:"name"`
			} `json:"list"`
		} `json:"templating"`
	}
	text, err := os.ReadFile(filepath.Join(dir, "grafana", "dashboards", "email-gateway.json"))
	if err != nil {
		return nil, fmt.Errorf("read dashboard: %w", err)
	}
	if err := json.Unmarshal(text, &board); err != nil {
		return nil, fmt.Errorf("read dashboard: %w", err)
	}
	if variables := board.Templating.List; len(variables) != 1 || variables[0].Name != "installation" {
		return nil, fmt.Errorf("read dashboard: the variables are %v, want installation", variables)
	}
	var all []Query
	for _, p := range board.Panels {
		if p.Type != "row" && len(p.Targets) == 0 {
			return nil, fmt.Errorf("read dashboard: panel %q has no query", p.Title)
		}
		for _, target := range p.Targets {
			if target.Datasource.UID != DatasourceUID {
				return nil, fmt.Errorf("read dashboard: panel %q uses the data source %q", p.Title, target.Datasource.UID)
			}
			all = append(all, Query{"panel " + p.Title, target.Expr})
		}
	}
	return all, nil
}

// DatasourceUID is the id of Prometheus in Grafana.
const DatasourceUID = "email-gateway"
