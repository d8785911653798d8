package observability

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// Metric is a metric of a README's table.
type Metric struct {
	Labels   []string // sorted
	Programs []string // sorted: api, dispatcher, worker
}

var (
	row    = regexp.MustCompile("(?m)^\\| `([a-z_0-9]+)` \\| ([^|]*) ?\\| ((?:api|dispatcher|worker)(?:, (?:dispatcher|worker))*) \\|")
	quoted = regexp.MustCompile("`([a-z_]+)`")
)

// Described returns the metrics of the tables in the READMEs of api and worker, below root.
func Described(root string) (map[string]Metric, error) {
	all := map[string]Metric{}
	for _, file := range []string{"api/README.md", "worker/README.md"} {
		text, err := os.ReadFile(filepath.Join(root, file))
		if err != nil {
			return nil, fmt.Errorf("read the table of metrics: %w", err)
		}
		rows := row.FindAllStringSubmatch(string(text), -1)
		if len(rows) == 0 {
			return nil, fmt.Errorf("read the table of metrics: %s has no table", file)
		}
		for _, r := range rows {
			m := Metric{Programs: strings.Split(r[3], ", ")}
			for _, label := range quoted.FindAllStringSubmatch(r[2], -1) {
				m.Labels = append(m.Labels, label[1])
			}
			slices.Sort(m.Labels)
			if _, twice := all[r[1]]; twice {
				return nil, fmt.Errorf("read the table of metrics: %s is not unique", r[1])
			}
			all[r[1]] = m
		}
	}
	return all, nil
}

// Known returns an error if a selector has a metric or a label that is not in the tables. job and
// instance are Prometheus's own, installation is one that operators may give to targets.
func Known(described map[string]Metric, s Selector) error {
	labels := []string{"job", "instance", "installation"}
	m, ours := described[s.Metric]
	switch {
	case ours:
		labels = append(labels, m.Labels...)
	case s.Metric != "up" && !strings.HasPrefix(s.Metric, "process_") && !strings.HasPrefix(s.Metric, "go_"):
		return fmt.Errorf("there is no metric %s", s.Metric)
	}
	for _, condition := range s.Matchers {
		if !slices.Contains(labels, condition.Label) {
			return fmt.Errorf("%s has no label %s", s.Metric, condition.Label)
		}
	}
	for _, label := range s.Grouped {
		if !slices.Contains(labels, label) {
			return fmt.Errorf("%s has no label %s to group by", s.Metric, label)
		}
	}
	return nil
}
