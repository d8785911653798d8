package store

import (
	"context"
	"encoding/json"
	"time"

	"github.com/google/uuid"

	"email-gateway/shared/store/internal/pg"
)

// What the tests look at from outside: the statements, to ask Postgres for their
// plans, and the encoders.
const (
	TakeDueSQL      = takeDueSQL
	TakeProbeSQL    = takeProbeSQL
	LeaseJobsSQL    = leaseJobsSQL
	BacklogSQL      = countBacklogSQL
	FindEmailSQL    = findEmailSQL
	WaitingLanesSQL = waitingLanesSQL
	ProbeLanesSQL   = probeLanesSQL
	OldestDueSQL    = oldestDueSQL
	OverdueSQL      = overdueSQL

	PickProbeSQL      = pickProbeSQL
	PickSafeProbeSQL  = pickSafeProbeSQL
	PickEarlyProbeSQL = pickEarlyProbeSQL

	AppendFeedbackSQL = appendFeedbackSQL
	ReturnIntakesSQL  = returnIntakesSQL
	DueReplaysSQL     = dueReplaysSQL
	RunningReplaysSQL = runningReplaysSQL
	ReadFeedbackSQL   = readFeedbackSQL
	SaveReplaySQL     = saveReplaySQL
	TakeFeedbackSQL   = takeFeedbackSQL
	AbandonedSQL      = abandonedSQL
	LongEnqueuedSQL   = longEnqueuedSQL
	StillEnqueuedSQL  = stillEnqueuedSQL
	UnresolvedSQL     = unresolvedSQL
	UnknownCausesSQL  = unknownCausesSQL
	AboutIDsSQL       = aboutIDsSQL
	ListIDsSQL        = listIDsSQL
	ListScan          = listScan
	WaitingScan       = waitingScan
	PageRowsSQL       = pageRowsSQL
	SearchIDsSQL      = searchIDsSQL
	StepIDsSQL        = stepIDsSQL
	TaggedIDsSQL      = taggedIDsSQL
	WaitingIDsSQL     = waitingIDsSQL

	ProblemIDsSQL      = problemIDsSQL
	NewSuppressionsSQL = newSuppressionsSQL

	CloseLaneSQL      = closeLaneSQL
	EntriesSQL        = entriesSQL
	FilenameHolderSQL = filenameHolderSQL
	ListLettersSQL    = listLettersSQL
	ListMailingsSQL   = listMailingsSQL
	RejectsSQL        = rejectsSQL

	CleanEmailLettersSQL = cleanEmailLettersSQL
	CleanBulkLettersSQL  = cleanBulkLettersSQL
	CleanFeedbackSQL     = cleanFeedbackSQL
	CleanKeysSQL         = cleanKeysSQL
)

// Those that stand in files.
var (
	AdvanceSQL      = advanceSQL
	AdvancePlainSQL = advancePlainSQL
	LoadSQL         = loadSQL
	ReleaseSQL      = releaseSQL
)

var DataSource = pg.DataSource

// AdvanceParameters are those of AdvanceSQL for the transitions.
func AdvanceParameters(ts []Transition) ([]any, error) { return argumentsFor(advanceParameters, ts) }

// AdvancePlainParameters are those of AdvancePlainSQL for the transitions.
func AdvancePlainParameters(ts []Transition) ([]any, error) { return argumentsFor(plainParameters, ts) }

func argumentsFor(p pg.Parameters[advanceScalars, Transition], ts []Transition) ([]any, error) {
	ready := make([]Transition, len(ts))
	for i, t := range ts {
		var err error
		if ready[i], err = t.encoded(); err != nil {
			return nil, err
		}
	}
	return advanceArguments(p, ready, 200*time.Millisecond), nil
}

// LoadParameters are those of LoadSQL.
func LoadParameters(ids ...uuid.UUID) []any { return loadParameters.Arguments(len(ids), ids) }

// Forget drops all prepared statements of a connection behind the driver's back.
func (s *Store) Forget(ctx context.Context) error {
	_, err := s.db.ExecContext(ctx, `DEALLOCATE ALL`)
	return err
}

// Replace puts other statements in the place of those that a connection has prepared.
func (s *Store) Replace(ctx context.Context) error {
	_, err := s.db.ExecContext(ctx, `DEALLOCATE ALL; PREPARE "1" AS SELECT $1::int; PREPARE "2" AS SELECT $1::int; PREPARE "3" AS SELECT $1::int`)
	return err
}

// PreparedStatements are those of a connection.
func (s *Store) PreparedStatements(ctx context.Context) (n int, err error) {
	return n, s.db.GetContext(ctx, &n, `SELECT count(*) FROM pg_prepared_statements`)
}

// TurnReadOnly makes n connections those of a server that takes no writes.
func (s *Store) TurnReadOnly(ctx context.Context, n int) error {
	for range n {
		conn, err := s.db.Connx(ctx)
		if err != nil {
			return err
		}
		defer conn.Close() //nolint:errcheck // it goes back to the pool
		if _, err := conn.ExecContext(ctx, `SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY`); err != nil {
			return err
		}
	}
	return nil
}

// Cell is one value of each kind that a column can hold.
type Cell struct {
	ID    uuid.UUID
	Text  string
	Bytes []byte
	JSON  []byte
	N     int64
	Yes   bool
	At    time.Time
}

// Columns lays the cells out as uuid, uuid or NULL, text, text or NULL, bytea,
// jsonb, bigint, bigint or NULL, boolean and timestamptz arrays.
func Columns(cells []Cell) []any {
	id, text, n := func(c *Cell) uuid.UUID { return c.ID }, func(c *Cell) string { return c.Text }, func(c *Cell) int64 { return c.N }
	return []any{
		pg.UUIDs(cells, id), pg.OptionalUUIDs(cells, id), pg.Texts(cells, text), pg.OptionalTexts(cells, text),
		pg.Byteas(cells, func(c *Cell) []byte { return c.Bytes }), pg.JSONBs(cells, func(c *Cell) []byte { return c.JSON }),
		pg.BigInts(cells, n), pg.OptionalBigInts(cells, n), pg.Bools(cells, func(c *Cell) bool { return c.Yes }), pg.Times(cells, func(c *Cell) time.Time { return c.At }),
	}
}

// PageRowsParameters are those of pageRowsSQL.
func PageRowsParameters(ids []uuid.UUID, f EmailFilter) []any {
	return pageRowsParameters(ids, f)
}

// InsertEmails writes one group of emails.
func InsertEmails(ctx context.Context, s *Store, emails []NewEmail) ([]bool, error) {
	for i := range emails {
		var err error
		if emails[i].payload, err = json.Marshal(emails[i].Job); err != nil {
			return nil, err
		}
	}
	return s.insertEmails(ctx, emails, 0)
}
