package e2e_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// logLine is the shape that every line of every program has.
type logLine struct {
	Level       string         `json:"level"`
	Timestamp   string         `json:"timestamp"`
	Service     string         `json:"service"`
	Environment string         `json:"environment"`
	Message     string         `json:"message"`
	Context     map[string]any `json:"context"`
}

var (
	stamp = regexp.MustCompile(`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$`)
	// unmasked matches an address that is not masked.
	unmasked = regexp.MustCompile(`[A-Za-z0-9._+-]+@[A-Za-z0-9-]+\.`)
	taxID    = regexp.MustCompile(`\b\d{3}\.?\d{3}\.?\d{3}-?\d{2}\b`)
)

// checkLogs checks the format of every line that the programs logged, and that the lines about an email have the
// fields that identify it.
func checkLogs(t *testing.T, s *system) {
	t.Helper()
	counts := map[string]int{}
	for name, p := range map[string]*program{"api": s.api, "dispatcher": s.dispatcher, "worker": s.worker} {
		for text := range strings.Lines(p.logged()) {
			if err := checkLine(name, strings.TrimSpace(text)); err != nil {
				t.Errorf("%s: %v: %s", name, err, text)
			}
			var line logLine
			if json.Unmarshal([]byte(text), &line) == nil {
				counts[line.Message]++
			}
		}
	}
	for _, message := range []string{"listening", "request", "email moved", "circuit breaker opened: only a probe is sent every few seconds, until the provider accepts one"} {
		if counts[message] == 0 {
			t.Errorf("no line says %q: %v", message, counts)
		}
	}
}

func checkLine(program, text string) error {
	var line logLine
	decoder := json.NewDecoder(bytes.NewReader([]byte(text)))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&line); err != nil {
		return fmt.Errorf("not the shape of a line: %w", err)
	}
	switch {
	case !slices.Contains([]string{"debug", "info", "warn", "error"}, line.Level):
		return fmt.Errorf("level %q", line.Level)
	case !stamp.MatchString(line.Timestamp):
		return fmt.Errorf("timestamp %q", line.Timestamp)
	case line.Service != "email-gateway-"+program || line.Environment != "development" || line.Message == "":
		return fmt.Errorf("service %q, environment %q, message %q", line.Service, line.Environment, line.Message)
	case unmasked.MatchString(text):
		return fmt.Errorf("it holds the address %s", unmasked.FindString(text))
	case taxID.MatchString(text):
		return fmt.Errorf("it holds the number %s", taxID.FindString(text))
	}
	var needed []string
	switch line.Message {
	case "email moved":
		needed = []string{"outboxId", "requestId", "companyId", "attempt", "state", "durationMs", "to"}
	case "request":
		needed = []string{"requestId", "method", "path", "status", "durationMs"}
		if line.Context["path"] == "/v1/email/send" {
			needed = append(needed, "companyId", "outboxId")
		}
	}
	for _, field := range needed {
		if value, there := line.Context[field]; !there || value == "" {
			return fmt.Errorf("it has no %s", field)
		}
	}
	return nil
}
