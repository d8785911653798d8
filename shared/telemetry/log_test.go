package telemetry_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"email-gateway/shared/telemetry"
)

// lines decodes a log of one JSON object per line.
func lines(t *testing.T, log *bytes.Buffer) []map[string]any {
	t.Helper()
	var all []map[string]any
	for line := range bytes.Lines(log.Bytes()) {
		var fields map[string]any
		if err := json.Unmarshal(line, &fields); err != nil {
			t.Fatalf("line %q: %v", line, err)
		}
		all = append(all, fields)
	}
	return all
}

func TestNewLogger_ShapeOfALine(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	logger := telemetry.NewLogger(&log, "email-gateway-worker", "production", "info")
	logger.With(telemetry.OutboxID, "0199").Warn("provider refused",
		telemetry.Attempt, 2, telemetry.DurationMS, 250, "error", errors.New("no\nsuch host"))

	written := lines(t, &log)
	if len(written) != 1 {
		t.Fatalf("%d lines, want 1:\n%s", len(written), log.String())
	}
	stamp, err := time.Parse("2006-01-02T15:04:05.000Z", written[0]["timestamp"].(string))
	if err != nil || time.Since(stamp) > time.Minute || time.Until(stamp) > time.Minute {
		t.Errorf("timestamp %v must be now in UTC, to the millisecond: %v", written[0]["timestamp"], err)
	}
	delete(written[0], "timestamp")
	want := map[string]any{
		"level": "warn", "service": "email-gateway-worker", "environment": "production", "message": "provider refused",
		"context": map[string]any{"outboxId": "0199", "attempt": 2.0, "durationMs": 250.0, "error": "no\nsuch host"},
	}
	if diff := cmp.Diff(want, written[0]); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// An attribute named "level", "time" or "message" is context and changes nothing outside of it.
func TestNewLogger_ContextKeepsItsNames(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	telemetry.NewLogger(&log, "s", "e", "info").Info("m", "level", "LOUD", "time", 7, "msg", "x", slog.Group("http", "level", "A"))
	line := lines(t, &log)[0]
	if line["level"] != "info" || line["message"] != "m" {
		t.Errorf("top level: %v", line)
	}
	want := map[string]any{"level": "LOUD", "time": 7.0, "msg": "x", "http": map[string]any{"level": "A"}}
	if diff := cmp.Diff(want, line["context"]); diff != "" {
		t.Errorf("context (-want +got):\n%s", diff)
	}
}

func TestNewLogger_Level(t *testing.T) {
	t.Parallel()
	tests := []struct {
		level string
		want  []string
	}{
		{"debug", []string{"debug", "info", "warn", "error"}},
		{"info", []string{"info", "warn", "error"}},
		{"WARN", []string{"warn", "error"}},
		{"error", []string{"error"}},
		{"", []string{"info", "warn", "error"}},
		{"verbose", []string{"info", "warn", "error"}},
	}
	for _, tt := range tests {
		t.Run(tt.level, func(t *testing.T) {
			t.Parallel()
			var log bytes.Buffer
			logger := telemetry.NewLogger(&log, "s", "e", tt.level)
			logger.Debug("x")
			logger.Info("x")
			logger.Warn("x")
			logger.Error("x")
			for _, level := range []slog.Level{slog.LevelInfo, slog.LevelWarn, slog.LevelError} {
				logger.Log(t.Context(), telemetry.Record(level), "record")
			}
			var got, records []string
			for _, line := range lines(t, &log) {
				if line["message"] == "record" {
					records = append(records, line["level"].(string))
					continue
				}
				got = append(got, line["level"].(string))
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if diff := cmp.Diff([]string{"info", "warn", "error"}, records); diff != "" {
				t.Errorf("records (-want +got):\n%s", diff)
			}
		})
	}
}
