// Package telemetry has the logs, metrics and traces of all programs: the format of a log line, the
// names of its fields, the registry for /metrics, and the spans sent to a collector.
package telemetry

import (
	"io"
	"log/slog"
	"strings"
)

// Fields of a log line's context. Addresses and hashes are logged masked (email.MaskAddress,
// email.MaskHash, email.MaskText), bodies and CPF or CNPJ never.
const (
	OutboxID   = "outboxId"
	RequestID  = "requestId"
	CompanyID  = "companyId"
	MailingID  = "mailingId"
	Attempt    = "attempt"
	State      = "state"
	DurationMS = "durationMs"
	// TraceID is the id of the line's trace; only if tracing is on.
	TraceID = "traceId"
)

// record is far above slog's levels, so every threshold lets it pass.
const record slog.Level = 1000

// Record returns the level of a line that is written whatever LOG_LEVEL is, and that shows level as its own. After a restore
// of the database from a dump, these lines are the only record of what came after it: the requests, and
// the results of attempts to send an email.
func Record(level slog.Level) slog.Level { return record + level }

// NewLogger writes one JSON object per line:
//
//	{"level":"info","timestamp":"…Z","service":"email-gateway-api","environment":"production","message":"…","context":{…}}
//
// service is email-gateway-api, -dispatcher or -worker. level is debug, info, warn
// or error; anything else is info. Lines with the level of Record are always written.
func NewLogger(w io.Writer, service, environment, level string) *slog.Logger {
	var threshold slog.Level
	if err := threshold.UnmarshalText([]byte(level)); err != nil {
		threshold = slog.LevelInfo
	}
	handler := slog.NewJSONHandler(w, &slog.HandlerOptions{Level: threshold, ReplaceAttr: renameTopLevel})
	return slog.New(handler).With("service", service, "environment", environment).WithGroup("context")
}

func renameTopLevel(groups []string, a slog.Attr) slog.Attr {
	if len(groups) > 0 {
		return a
	}
	switch a.Key {
	case slog.LevelKey:
		level, _ := a.Value.Any().(slog.Level)
		if level >= record/2 {
			level -= record
		}
		return slog.String("level", strings.ToLower(level.String()))
	case slog.TimeKey:
		return slog.String("timestamp", a.Value.Time().UTC().Format("2006-01-02T15:04:05.000Z07:00"))
	case slog.MessageKey:
		a.Key = "message"
	}
	return a
}
