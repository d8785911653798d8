// Package doctor looks at a gateway as a whole and says what is not well and what to do
// about it: Postgres and its shape, the settings, the api, what dispatcher and worker say
// of the parts they talk to, and what waits or was given up. gatewayctl doctor prints it.
//
// It changes nothing, and knows of Redis, RabbitMQ and SES only what those say who use
// them. Of settings it knows the api's, where they are set; those of dispatcher and worker
// are theirs to check, which they do when they start.
package doctor

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"

	"email-gateway/shared/store"
)

// Status is how something is.
type Status string

// What a thing can be, the worse the later. What could not be looked at is Skipped: it may
// be either.
const (
	OK      Status = "ok"
	Skipped Status = "skipped"
	Warning Status = "warning" // it works, and somebody should look at it
	Failure Status = "failure" // it does not work
)

// Finding is what was found about one thing. Check names it, for programs; there can be
// several about the same.
type Finding struct {
	Check  string `json:"check"`
	Status Status `json:"status"`
	Text   string `json:"text"`             // a sentence
	Advice string `json:"advice,omitempty"` // what to do
}

// Report is all of them. Its status is that of the worst.
type Report struct {
	Status    Status    `json:"status"` // ok, warning or failure
	CheckedAt time.Time `json:"checkedAt"`
	Findings  []Finding `json:"findings"`
}

// Store is what the doctor asks of the database. *store.Store is one.
type Store interface {
	Server(ctx context.Context) (store.Server, error)
	Confirm(ctx context.Context) error
	Pooled(ctx context.Context) (bool, error)
	SchemaVersion(ctx context.Context) (int64, error)
	MissingLogPartitions(ctx context.Context) ([]store.MissingPartitions, error)
	ProcessStatuses(ctx context.Context) ([]store.ProcessStatus, error)
	Gate(ctx context.Context) (store.Gate, error)
	Lanes(ctx context.Context, f store.LaneFilter, limit int) ([]store.Lane, error)
	Companies(ctx context.Context) ([]store.Company, error)
	SenderDomains(ctx context.Context, company uuid.UUID) ([]string, error)
	APIKeys(ctx context.Context, company uuid.UUID) ([]store.APIKey, error)
	CountBacklog(ctx context.Context, limit int) (store.Backlog, error)
	OldestDue(ctx context.Context) ([]store.LaneAge, error)
}

// Patient is what is looked at.
type Patient struct {
	Environ []string // "NAME=value" lines
	Store   Store    // nil: the database cannot be used, and StoreErr says why
	// StoreErr is what opening the database ended with.
	StoreErr error
	// Newest is the number of the newest migration that this release brings.
	Newest int64
	// ListenPooled says whether DATABASE_LISTEN_URL leads to a pooler; nil where it is not set.
	ListenPooled func(ctx context.Context) (bool, error)
	// Health asks the api how it is, and Ping the storage for a sign of life; nil where
	// nobody has said where they are.
	Health func(ctx context.Context) (Health, error)
	Ping   func(ctx context.Context) error
}

// Health is what the api answers at /health, as far as it is of interest here.
type Health struct {
	Status   string `json:"status"`
	Database struct {
		Status string `json:"status"`
	} `json:"database"`
	Storage struct {
		Status string `json:"status"`
	} `json:"storage"`
}

// examination is one under way.
type examination struct {
	Patient
	report Report
	bulk   bool // there is a RabbitMQ, as far as this environment or a process says
	alive  []process
}

// Examine looks at everything and reports all it has found, in an order in which a person
// would go about it. It takes some seconds at most when nothing answers.
func Examine(ctx context.Context, p Patient) Report {
	x := &examination{Patient: p, report: Report{CheckedAt: time.Now().UTC(), Findings: []Finding{}}}
	x.settings()
	if x.database(ctx) {
		x.migrations(ctx)
		x.partitions(ctx)
		x.tenants(ctx)
		x.processes(ctx)
		x.gate(ctx)
		x.lanes(ctx)
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

// couldNot reports a question that the database did not answer, and says whether it is one.
func (x *examination) couldNot(check string, err error) bool {
	if err == nil {
		return false
	}
	x.add(check, Failure, "Look at Postgres's log; `migrate roles` gives this role what it needs.", "It could not be looked at: %v", err)
	return true
}
