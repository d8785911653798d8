// Package doctor checks a gateway installation and advises how to fix problems: Postgres and
// its schema, the settings, the api, the components as reported by dispatcher and worker, the
// backlog and the dead letters. gatewayctl doctor prints the report.
//
// It changes nothing. It knows the state of Redis, RabbitMQ and SES only from the processes
// that use them. It checks the api's settings if they are set here; dispatcher and worker
// validate their own when they start.
package doctor

import (
	"context"
	"fmt"
	"strings"
	"time"

	"email-gateway/shared/store"
	"email-gateway/shared/store/breaker"
	"email-gateway/shared/store/dispatch"
	"email-gateway/shared/store/feedback"
	"email-gateway/shared/store/lane"
	"email-gateway/shared/store/mailing"
	processstore "email-gateway/shared/store/process"
	"email-gateway/shared/store/retention"
	"email-gateway/shared/store/tenant"
)

// Status is the result of a check.
type Status string

// The statuses, from best to worst. A check that could not run is Skipped: its result is
// unknown.
const (
	OK      Status = "ok"
	Skipped Status = "skipped"
	Warning Status = "warning" // it works but needs attention
	Failure Status = "failure" // it does not work
)

// Finding is the result of one check. Check is its stable name; a check can have several
// findings.
type Finding struct {
	Check  string `json:"check"`
	Status Status `json:"status"`
	Text   string `json:"text"`             // a sentence
	Advice string `json:"advice,omitempty"` // what to do
}

// Report holds all findings. Its status is the worst of theirs.
type Report struct {
	Status    Status    `json:"status"` // ok, warning or failure
	CheckedAt time.Time `json:"checkedAt"`
	Findings  []Finding `json:"findings"`
}

// Partitions is the part of *retention.Store that the checks use.
type Partitions interface {
	MissingLogPartitions(ctx context.Context) ([]retention.MissingPartitions, error)
}

// Store is the part of *store.Store that the checks use.
type Store interface {
	Server(ctx context.Context) (store.Server, error)
	Confirm(ctx context.Context) error
	Pooled(ctx context.Context) (bool, error)
	SchemaVersion(ctx context.Context) (int64, error)
	WorkersNeedKeys(ctx context.Context) (bool, error)
	ProcessStatuses(ctx context.Context) ([]processstore.Status, error)
	Breaker(ctx context.Context) (breaker.Breaker, error)
	Lanes(ctx context.Context, f lane.Filter, limit int) ([]lane.Lane, error)
	StalledMailings(ctx context.Context, age time.Duration, limit int) ([]mailing.StalledMailing, error)
	Senders(ctx context.Context) ([]tenant.Sender, error)
	CountBacklog(ctx context.Context, limit int) (dispatch.Backlog, error)
	OldestDue(ctx context.Context) ([]dispatch.LaneAge, error)
	ServedQueues(ctx context.Context, within time.Duration) ([]string, error)
	EventArrivals(ctx context.Context) (feedback.Arrivals, error)
}

// Inputs holds what the checks examine.
type Inputs struct {
	Environ []string // "NAME=value" lines
	Store   Store    // nil if the database is not usable; see StoreErr
	// Partitions are those of the logs. Required with Store.
	Partitions Partitions
	// StoreErr is the error of opening the database.
	StoreErr error
	// Newest is the newest migration of this release.
	Newest int64
	// Grants is schema.RolesFingerprint of this release.
	Grants string
	// ListenPooled reports whether DATABASE_LISTEN_URL leads to a pooler; nil if it is not set.
	ListenPooled func(ctx context.Context) (bool, error)
	// Health queries the api's /health, and Ping the storage; nil if their addresses are not
	// set.
	Health func(ctx context.Context) (Health, error)
	Ping   func(ctx context.Context) error
}

// Health is the part of the api's /health response that the checks use.
type Health struct {
	Status   string `json:"status"`
	Database struct {
		Status string `json:"status"`
	} `json:"database"`
	Storage struct {
		Status string `json:"status"`
	} `json:"storage"`
}

// examination is a run of all checks.
type examination struct {
	Inputs
	report Report
	health Health        // of the api, if it answers
	server store.Server  // if Postgres answers
	bulk   bool          // RabbitMQ is used, according to this environment or a process
	keyIDs []string      // of the api's CPF_CNPJ_KEYS, if they are set here
	links  *linkSettings // of the api, if its settings are set here
	alive  []process
	// stopped: no email is sent, because an operator has paused all sending or the circuit breaker is open.
	stopped bool
}

// Examine runs all checks and reports their findings, in the order in which to work through
// them. If nothing answers, it takes a few seconds.
func Examine(ctx context.Context, p Inputs) Report {
	x := &examination{Inputs: p, report: Report{CheckedAt: time.Now().UTC(), Findings: []Finding{}}}
	x.settings()
	if x.database(ctx) {
		x.migrations(ctx)
		x.partitions(ctx)
		x.tenants(ctx)
		x.processes(ctx)
		x.eventArrivals(ctx)
		x.circuitBreaker(ctx)
		x.lanes(ctx)
		x.mailings(ctx)
		x.waiting(ctx)
		x.backlog(ctx)
	}
	x.api(ctx)
	x.storage(ctx)
	x.report.Status = OK
	for _, f := range x.report.Findings {
		switch {
		case f.Status == Failure:
			x.report.Status = Failure
		case f.Status == Warning && x.report.Status == OK:
			x.report.Status = Warning
		}
	}
	return x.report
}

func (x *examination) add(check string, s Status, advice, format string, args ...any) {
	text := strings.ReplaceAll(fmt.Sprintf(format, args...), "\n", ": ") // of joined errors
	if s != OK && x.value(devVariable) != "" {
		advice = x.devAdvice(check, s, advice)
	}
	x.report.Findings = append(x.report.Findings, Finding{Check: check, Status: s, Text: text, Advice: advice})
}

// couldNot reports a failed query, and whether there was an error.
func (x *examination) couldNot(check string, err error) bool {
	if err == nil {
		return false
	}
	x.add(check, Failure, "See the log of Postgres. If this role lacks permissions, run `migrate roles`.", "The check failed: %v", err)
	return true
}
