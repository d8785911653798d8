package maintenance_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"

	"email-gateway/shared/store"
	"email-gateway/shared/store/audit"
	"email-gateway/shared/store/deadletter"
	"email-gateway/shared/store/outbox"
	"email-gateway/shared/store/recipient"
	"email-gateway/shared/store/storetest"
	"email-gateway/shared/waittest"
	"email-gateway/worker/internal/fairloop"
	"email-gateway/worker/internal/maintenance"
)

// flaky is a store whose first retries return err.
type flaky struct {
	*store.Store
	err      error
	failures atomic.Int64
}

func (f *flaky) RetryDeadLetter(ctx context.Context, l deadletter.Letter, r deadletter.LetterRetry) error {
	if f.failures.Add(-1) >= 0 {
		return fmt.Errorf("retry: %w", f.err)
	}
	return f.Store.RetryDeadLetter(ctx, l, r)
}

func replayOn(t *testing.T, d storetest.Database, s maintenance.ReplayStore) {
	t.Helper()
	advancer := d.Store.NewAdvancer()
	t.Cleanup(advancer.Close)
	run(t, maintenance.NewReplayer(maintenance.ReplayerParams{
		Log: slog.New(slog.DiscardHandler), Store: s, Advancer: advancer, Registry: prometheus.NewRegistry(), TTL: time.Hour,
	}))
}

func ask(t *testing.T, d storetest.Database, company uuid.UUID, change func(*deadletter.NewReplay)) deadletter.Replay {
	t.Helper()
	n := deadletter.NewReplay{
		ID: uuid.Must(uuid.NewV7()), CompanyID: &company, Action: deadletter.ReplayRetry,
		Actor: audit.Actor{By: audit.ByAPI, Name: "key1"}, Rate: deadletter.MaxReplayRate,
	}
	if change != nil {
		change(&n)
	}
	made, err := d.Store.CreateReplay(t.Context(), n)
	if err != nil {
		t.Fatal(err)
	}
	return made
}

// ended waits for a replay's end.
func ended(t *testing.T, d storetest.Database, id uuid.UUID) (r deadletter.Replay) {
	t.Helper()
	waittest.Until(t, "the replay has ended", func() bool {
		var err error
		if r, err = d.Store.FindAnyReplay(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		return r.Status == deadletter.ReplayCompleted
	})
	return r
}

// giveUp inserts n failed emails of the company with their dead letters.
func giveUp(t *testing.T, d storetest.Database, company uuid.UUID, n int) {
	t.Helper()
	const given = `status = 'FAILED' AND company_id = (SELECT company_id FROM email_outbox WHERE id = $1)`
	for _, statement := range []string{
		`INSERT INTO email_outbox (id, company_id, lane_id, request_id, payload, sender, html, html_sha256, checker_version, expires_at, status, processed_at, attempts)
		 SELECT gen_random_uuid(), company_id, lane_id, request_id, payload, sender, html, html_sha256, checker_version, now(), 'FAILED', now(), 5
		 FROM email_outbox, generate_series(1, $2) WHERE id = $1`,
		`INSERT INTO email_logs (outbox_id, company_id, recipient, subject, status, attempts, request_id, expires_at, created_at, failed_at, event_seq, last_event)
		 SELECT id, company_id, 'ana@example.com', 's', 'FAILED', 5, request_id, expires_at, created_at, now(), 5, 'FAILED' FROM email_outbox WHERE ` + given + ` LIMIT $2`,
		`INSERT INTO dead_letters (id, company_id, outbox_id, target, reason, payload)
		 SELECT gen_random_uuid(), company_id, id, 'email:send', 'SES_REJECTED', payload FROM email_outbox WHERE ` + given + ` LIMIT $2`,
	} {
		if _, err := d.SQL.ExecContext(t.Context(), statement, d.Accept(t, company, nil), n); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := d.SQL.ExecContext(t.Context(), `DELETE FROM email_outbox WHERE status = 'PENDING'`); err != nil {
		t.Fatal(err)
	}
}

// Two replayers as in two dispatchers, one of which cannot reach the database at first: all emails
// are sent again, each once.
func TestReplayer(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	const n = 1300
	giveUp(t, d, company, n)
	if _, err := d.SQL.ExecContext(t.Context(), `INSERT INTO dead_letters (id, company_id, outbox_id, target, reason, payload)
		VALUES (gen_random_uuid(), $1, gen_random_uuid(), 'email:send', 'OUTBOX_NOT_FOUND', '{}')`, company); err != nil {
		t.Fatal(err)
	}
	made := ask(t, d, company, nil)
	broken := &flaky{Store: d.Store, err: store.ErrUnavailable}
	broken.failures.Store(30)
	replayOn(t, d, broken)
	replayOn(t, d, d.Store)
	if r := ended(t, d, made.ID); r.Matched != n+1 || r.Done != n || r.Skipped != 1 || r.Failed != 0 {
		t.Errorf("%+v", r)
	}
	for query, want := range map[string]int{
		`SELECT count(*) FROM email_outbox WHERE status = 'PENDING' AND attempts = 0 AND expires_at > now() + interval '50 min'`:             n,
		`SELECT count(*) FROM email_events WHERE type = 'REPLAYED' AND metadata ->> 'replayId' = (SELECT id::text FROM dead_letter_replays)`: n,
		`SELECT count(*) FROM dead_letters WHERE resolved_at IS NULL`:                                                                        1,
	} {
		if got := number(t, d, query); got != want {
			t.Errorf("%s: %d, want %d", query, got, want)
		}
	}
}

// A dead letter that another transaction has locked holds up the bulk discard of its company, and no other replay.
func TestReplayer_LockedDeadLetter(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	blocked, other := d.Company(t), d.Company(t)
	giveUp(t, d, blocked, 3)
	locking, err := d.SQL.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = locking.Rollback() }()
	if _, err := locking.ExecContext(t.Context(), `SELECT FROM dead_letters FOR UPDATE`); err != nil {
		t.Fatal(err)
	}
	if _, err := d.SQL.ExecContext(t.Context(), `INSERT INTO dead_letters (id, company_id, outbox_id, target, reason, payload)
		SELECT gen_random_uuid(), $1, gen_random_uuid(), 'email:send', 'OUTBOX_NOT_FOUND', '{}' FROM generate_series(1, 5)`, other); err != nil {
		t.Fatal(err)
	}
	discard := func(n *deadletter.NewReplay) { n.Action, n.Rate = deadletter.ReplayDiscard, 2 } // a dead letter per round
	waits, passes := ask(t, d, blocked, discard), ask(t, d, other, discard)
	replayOn(t, d, d.Store)
	if r := ended(t, d, passes.ID); r.Done != 5 {
		t.Errorf("%+v", r)
	}
	if err := locking.Rollback(); err != nil {
		t.Fatal(err)
	}
	if r := ended(t, d, waits.ID); r.Done != 3 {
		t.Errorf("%+v", r)
	}
}

// Bulk discards that wait for a locked dead letter do not delay the company's other ones until it is free.
func TestReplayer_LockedDeadLetterOfSibling(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	giveUp(t, d, company, 1)
	locking, err := d.SQL.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = locking.Rollback() }()
	if _, err := locking.ExecContext(t.Context(), `SELECT FROM dead_letters FOR UPDATE`); err != nil {
		t.Fatal(err)
	}
	d.Run(t, `INSERT INTO dead_letters (id, company_id, outbox_id, target, reason, payload)
		SELECT gen_random_uuid(), $1, gen_random_uuid(), 'email:send', 'OUTBOX_NOT_FOUND', '{}' FROM generate_series(1, 5)`, company)
	discard := func(reason string) func(*deadletter.NewReplay) {
		return func(n *deadletter.NewReplay) { n.Action, n.Filter.Reason = deadletter.ReplayDiscard, reason }
	}
	for range 2 {
		ask(t, d, company, discard("SES_REJECTED"))
	}
	made := ask(t, d, company, discard("OUTBOX_NOT_FOUND"))
	replayOn(t, d, d.Store)
	if r := ended(t, d, made.ID); r.Done != 5 {
		t.Errorf("%+v", r)
	}
}

// An email that another transaction has locked postpones the bulk retry of its company: what comes before it is saved, the email
// is not counted as failed, and the replay of another company ends meanwhile.
func TestReplayer_LockedEmail(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	blocked, other := d.Company(t), d.Company(t)
	giveUp(t, d, blocked, 3)
	locking, err := d.SQL.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = locking.Rollback() }()
	const second = `(SELECT outbox_id FROM dead_letters WHERE company_id = $1 ORDER BY created_at, id LIMIT 1 OFFSET 1)`
	if _, err := locking.ExecContext(t.Context(), `SELECT FROM email_outbox WHERE id = `+second+` FOR UPDATE`, blocked); err != nil {
		t.Fatal(err)
	}
	waits := ask(t, d, blocked, nil)
	giveUp(t, d, other, 5)
	passes := ask(t, d, other, nil)
	replayOn(t, d, d.Store)
	if r := ended(t, d, passes.ID); r.Done != 5 || r.Failed != 0 {
		t.Errorf("the other company's: %+v", r)
	}
	waittest.Until(t, "what comes before the locked email is saved", func() bool {
		r, err := d.Store.FindAnyReplay(t.Context(), waits.ID)
		if err != nil {
			t.Fatal(err)
		}
		return r.Done == 1 || r.Status == deadletter.ReplayCompleted
	})
	if err := locking.Rollback(); err != nil {
		t.Fatal(err)
	}
	if r := ended(t, d, waits.ID); r.Done != 3 || r.Failed != 0 {
		t.Errorf("%+v", r)
	}
}

// unlocking is a store that unlocks a row when a retry has found it locked, and counts the rounds that are postponed.
type unlocking struct {
	*store.Store
	unlock    func()
	locked    atomic.Int64
	postponed atomic.Int64
}

func (u *unlocking) RetryDeadLetter(ctx context.Context, l deadletter.Letter, r deadletter.LetterRetry) error {
	err := u.Store.RetryDeadLetter(ctx, l, r)
	if errors.Is(err, outbox.ErrAggregateBusy) && u.locked.Add(1) == 1 {
		u.unlock()
	}
	return err
}

func (u *unlocking) WorkReplay(
	ctx context.Context, id uuid.UUID, limit int, retry func(context.Context, deadletter.Replay, []deadletter.Letter) (deadletter.ReplayCounts, error),
) (deadletter.ReplayRound, error) {
	round, err := u.Store.WorkReplay(ctx, id, limit, retry)
	if round.Postponed {
		u.postponed.Add(1)
	}
	return round, err
}

// An email that another transaction has locked for a moment does not postpone the bulk retry.
func TestReplayer_EmailLockedForAMoment(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	giveUp(t, d, company, 100)
	locking, err := d.SQL.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = locking.Rollback() }()
	if _, err := locking.ExecContext(t.Context(), `SELECT FROM email_outbox WHERE id = (SELECT outbox_id FROM dead_letters ORDER BY created_at, id LIMIT 1) FOR UPDATE`); err != nil {
		t.Fatal(err)
	}
	s := &unlocking{Store: d.Store, unlock: func() { _ = locking.Rollback() }}
	made := ask(t, d, company, nil)
	replayOn(t, d, s)
	if r := ended(t, d, made.ID); r.Done != 100 || r.Failed != 0 {
		t.Errorf("%+v", r)
	}
	if s.locked.Load() == 0 || s.postponed.Load() > 0 {
		t.Errorf("locked %d times, %d rounds postponed", s.locked.Load(), s.postponed.Load())
	}
}

// slowFor is a store in which each round of one company lasts as long as a pass.
type slowFor struct {
	*store.Store
	t       *testing.T
	company uuid.UUID
	mu      sync.Mutex
	rounds  []bool // whether the round was one of the company
}

func (s *slowFor) WorkReplay(
	ctx context.Context, id uuid.UUID, limit int, retry func(context.Context, deadletter.Replay, []deadletter.Letter) (deadletter.ReplayCounts, error),
) (deadletter.ReplayRound, error) {
	began := time.Now()
	round, err := s.Store.WorkReplay(ctx, id, limit, retry)
	if round.ID == uuid.Nil {
		return round, err
	}
	slow := *round.CompanyID == s.company
	if slow {
		waittest.Until(s.t, "the time of a pass is over", func() bool { return time.Since(began) >= fairloop.PassTime })
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rounds = append(s.rounds, slow)
	return round, err
}

// A company with as many replays as it may have, whose rounds are slow because each begins with a locked email, delays each round
// of another company's replay by one of its own.
func TestReplayer_CompaniesTakeTurns(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	many, one := d.Company(t), d.Company(t)
	giveUp(t, d, many, 1)
	locking, err := d.SQL.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = locking.Rollback() }()
	if _, err := locking.ExecContext(t.Context(), `SELECT FROM email_outbox WHERE company_id = $1 FOR UPDATE`, many); err != nil {
		t.Fatal(err)
	}
	for range deadletter.MaxRunningReplays {
		ask(t, d, many, nil)
	}
	giveUp(t, d, one, 5)
	made := ask(t, d, one, func(n *deadletter.NewReplay) { n.Rate = 2 }) // a dead letter per round
	s := &slowFor{Store: d.Store, t: t, company: many}
	replayOn(t, d, s)
	if r := ended(t, d, made.ID); r.Done != 5 {
		t.Errorf("%+v", r)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	between := 0
	for i, slow := range s.rounds {
		if between++; !slow {
			between = 0
		}
		if between > 2 { // a round of the other may not be due yet
			t.Fatalf("round %d of %v is the third one in a row", i+1, s.rounds)
		}
	}
}

// While Postgres is slow, or rows are locked, for some seconds, no dead letter counts as failed.
func TestReplayer_BusyIsNoFailure(t *testing.T) {
	t.Parallel()
	for _, busy := range []error{store.ErrBusy, store.ErrTries, store.ErrTriesOfCompany, outbox.ErrAggregateBusy, errors.Join(store.ErrBusy, store.ErrUnavailable)} {
		t.Run(busy.Error(), func(t *testing.T) {
			t.Parallel()
			d := storetest.New(t)
			company := d.Company(t)
			giveUp(t, d, company, 100)
			made := ask(t, d, company, nil)
			slow := &flaky{Store: d.Store, err: busy}
			slow.failures.Store(3)
			replayOn(t, d, slow)
			if r := ended(t, d, made.ID); r.Done != 100 || r.Failed != 0 {
				t.Errorf("%+v", r)
			}
		})
	}
}

// While the reputation guard has paused the company's mailings, the dead letter of a mailing is skipped, and stays open.
func TestReplayer_MailingsPaused(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	mailing := d.Mailing(t, company, 1, nil)
	d.Run(t, `UPDATE mailings SET status = 'FAILED' WHERE id = $1`, mailing)
	d.Run(t, `UPDATE companies SET mailings_paused_at = now()`)
	d.Run(t, `INSERT INTO dead_letters (id, company_id, mailing_id, target, reason, payload)
		VALUES (gen_random_uuid(), $1, $2, 'mailing.process', 'MAILING_JOB_FAILED', '{}')`, company, mailing)
	made := ask(t, d, company, nil)
	replayOn(t, d, d.Store)
	if r := ended(t, d, made.ID); r.Skipped != 1 || r.Failed != 0 {
		t.Errorf("%+v", r)
	}
	if n := number(t, d, `SELECT count(*) FROM dead_letters WHERE resolved_at IS NULL`); n != 1 {
		t.Errorf("%d open dead letters", n)
	}
}

// Imports whose rows another transaction has locked are retried after that: those that find no place among the ones that wait
// for the lock do not count as failed.
func TestReplayer_LockedImports(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	const n = 20
	known := make([]recipient.NewRecipient, n)
	for i := range known {
		known[i] = storetest.KnownRecipient(fmt.Sprint(i), fmt.Sprintf("%d@example.com", i), "")
	}
	storetest.Intake(t, d, company, known...)
	for _, statement := range []string{
		`UPDATE email_outbox SET status = 'FAILED', processed_at = now()`,
		`INSERT INTO dead_letters (id, company_id, outbox_id, target, reason, payload)
		 SELECT gen_random_uuid(), company_id, id, target, 'RECIPIENT_REFUSED', '{}' FROM email_outbox`,
	} {
		if _, err := d.SQL.ExecContext(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	locking, err := d.SQL.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = locking.Rollback() }()
	if _, err := locking.ExecContext(t.Context(), `SELECT FROM email_outbox FOR UPDATE`); err != nil {
		t.Fatal(err)
	}
	made := ask(t, d, company, nil)
	replayOn(t, d, d.Store)
	waittest.Until(t, "the replay is postponed", func() bool {
		return number(t, d, `SELECT count(*) FROM dead_letter_replays WHERE status = 'COMPLETED' OR next_at > created_at + interval '5 s'`) == 1
	})
	if err := locking.Rollback(); err != nil {
		t.Fatal(err)
	}
	if r := ended(t, d, made.ID); r.Done != n || r.Failed != 0 {
		t.Errorf("%+v", r)
	}
}

// refusing is a database that refuses one kind of row.
type refusing struct{ *store.Store }

func (refusing) RetryDeadLetter(context.Context, deadletter.Letter, deadletter.LetterRetry) error {
	return errors.New("refused")
}

// A dead letter that cannot be retried is logged with the email's id.
func TestReplayer_LogsEmailID(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	giveUp(t, d, company, 1)
	made := ask(t, d, company, nil)
	var log bytes.Buffer
	advancer := d.Store.NewAdvancer()
	defer advancer.Close()
	t.Run("to its end", func(t *testing.T) { //nolint:paralleltest // the log is read after it
		run(t, maintenance.NewReplayer(maintenance.ReplayerParams{
			Log: slog.New(slog.NewJSONHandler(&log, nil)), Store: refusing{d.Store}, Advancer: advancer, Registry: prometheus.NewRegistry(), TTL: time.Hour,
		}))
		ended(t, d, made.ID)
	})
	var id string
	if err := d.SQL.QueryRowContext(t.Context(), `SELECT outbox_id FROM dead_letters`).Scan(&id); err != nil || !strings.Contains(log.String(), `"outboxId":"`+id+`"`) {
		t.Errorf("%v: %s", err, log.String())
	}
}

// The rate is kept, and discarded letters are discarded.
func TestReplayer_Rate(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	giveUp(t, d, company, 60)
	replayOn(t, d, d.Store)
	replayOn(t, d, d.Store)
	start := time.Now()
	slow := ask(t, d, company, func(r *deadletter.NewReplay) { r.Rate, r.Most = 10, 20 })
	if r := ended(t, d, slow.ID); r.Done != 20 || time.Since(start) < 1400*time.Millisecond { // five at once, then 10 per second
		t.Errorf("%d after %s", r.Done, time.Since(start))
	}
	rest := ask(t, d, company, func(r *deadletter.NewReplay) { r.Action = deadletter.ReplayDiscard })
	if r := ended(t, d, rest.ID); r.Done != 40 {
		t.Errorf("%+v", r)
	}
	if n := number(t, d, `SELECT count(*) FROM email_outbox WHERE status = 'PENDING'`); n != 20 {
		t.Errorf("%d sent again", n)
	}
}
