package store_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"email-gateway/shared/store"
	"email-gateway/shared/store/audit"
	"email-gateway/shared/store/deadletter"
	"email-gateway/shared/store/storetest"
)

// replay creates a replay of all dead letters of the company.
func replay(t *testing.T, d storetest.Database, company *uuid.UUID, change func(*deadletter.NewReplay)) deadletter.Replay {
	t.Helper()
	n := deadletter.NewReplay{
		ID: uuid.Must(uuid.NewV7()), CompanyID: company, Action: deadletter.ReplayRetry, RequestID: "req-1",
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

// oneByOne retries as the loop does, and counts what cannot be.
func oneByOne(d storetest.Database) func(context.Context, deadletter.Replay, []deadletter.Letter) (deadletter.ReplayCounts, error) {
	return func(ctx context.Context, r deadletter.Replay, letters []deadletter.Letter) (n deadletter.ReplayCounts, err error) {
		how := r.Retry()
		how.TTL = time.Hour
		for _, l := range letters {
			var nothing *deadletter.NotReplayableError
			switch err := d.Store.RetryDeadLetter(ctx, l, how); {
			case errors.As(err, &nothing):
				n.Skipped++
			case err != nil:
				return n, err
			default:
				n.Done++
			}
		}
		return n, nil
	}
}

// finish runs rounds, each due at once, until the replay has ended.
func finish(t *testing.T, d storetest.Database, id uuid.UUID, limit int) deadletter.Replay {
	t.Helper()
	for range 100 {
		run(t, d, `UPDATE dead_letter_replays SET next_at = now() WHERE id = $1`, id)
		if _, err := d.Store.WorkReplay(t.Context(), id, limit, oneByOne(d)); err != nil {
			t.Fatal(err)
		}
		r, err := d.Store.FindAnyReplay(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		if r.Status == deadletter.ReplayCompleted {
			return r
		}
	}
	t.Fatal("the replay has not ended")
	return deadletter.Replay{}
}

// A replay is created without reading all dead letters of the company: there may be millions that do not match. An operator's
// count finds those that match behind them.
func TestReplay_CountIsBounded(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	scan := writtenNumber(t, "deadletter.countScan")
	run(t, d, `INSERT INTO dead_letters (id, company_id, target, reason, payload, created_at)
		SELECT gen_random_uuid(), $1, 'email:send', CASE WHEN n <= 2 OR n > $2 THEN 'WANTED' ELSE 'OTHER' END, '{}', now() - interval '1 day' + n * interval '1 ms'
		FROM generate_series(1, $2 + 3) n`, company, scan)
	run(t, d, `ANALYZE dead_letters`)
	q := []any{company, nil, nil, nil, nil, "WANTED", "", nil, "", "false", nil}
	whole := func(limit int) int {
		_, read := storetest.Buffers(t, storetest.Connect(t, d, store.Options{}), written(t, "deadletter.countLettersSQL"), append(q, limit)...)
		return read
	}
	if few := whole(scan / 10); few > scan/5 {
		t.Errorf("a scan of %d rows reads %d buffers", scan/10, few)
	}
	if made := replay(t, d, &company, func(n *deadletter.NewReplay) { n.Filter.Reason = "WANTED" }); made.Matched != 2 {
		t.Errorf("%d of the oldest match", made.Matched)
	}
	if n, err := d.Store.CountDeadLetters(t.Context(), &company, deadletter.LetterFilter{Reason: "WANTED"}); n != 5 || err != nil {
		t.Errorf("%d match, %v", n, err)
	}
	if n, err := d.Store.CountDeadLetters(t.Context(), nil, deadletter.LetterFilter{Reason: "WANTED"}); n != 5 || err != nil {
		t.Errorf("%d of all companies match, %v", n, err)
	}
}

func TestReplay(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company, other := d.Company(t), d.Company(t)
	var ids []uuid.UUID
	for range 7 {
		ids = append(ids, giveUp(t, d, company, nil))
	}
	foreign := giveUp(t, d, other, nil)
	run(t, d, `DELETE FROM email_outbox WHERE id = $1`, ids[3])                        // not replayable
	run(t, d, `UPDATE dead_letters SET reason = 'OTHER' WHERE outbox_id = $1`, ids[5]) // not selected
	made := replay(t, d, &company, func(n *deadletter.NewReplay) { n.Filter.Reason = "SES_REJECTED" })
	if made.Matched != 6 || made.Status != deadletter.ReplayRunning || made.Filter.Reason != "SES_REJECTED" {
		t.Errorf("%+v", made)
	}
	late := giveUp(t, d, company, nil) // after the request
	done := finish(t, d, made.ID, 2)
	if diff := cmp.Diff(deadletter.ReplayCounts{Done: 5, Skipped: 1}, done.ReplayCounts); diff != "" || done.FinishedAt == nil {
		t.Errorf("%+v: %s", done, diff)
	}
	for i, id := range ids {
		want := fmt.Sprintf("t retried api:key1 %s", made.ID)
		if i == 3 || i == 5 {
			want = "f"
		}
		if got := resolved(t, d, letterOf(t, d, id).ID); got != want {
			t.Errorf("%d: %s, want %s", i, got, want)
		}
	}
	for _, id := range []uuid.UUID{foreign, late} {
		if got := ask[string](t, d, `SELECT status FROM email_outbox WHERE id = $1`, id); got != "FAILED" {
			t.Errorf("an email that was not selected is %s", got)
		}
	}
	if _, err := d.Store.FindReplay(t.Context(), other, made.ID); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("another company's: %v", err)
	}

	// An operator's reaches everybody's, and what is to be discarded is.
	all := replay(t, d, nil, func(n *deadletter.NewReplay) { n.Action, n.Note = deadletter.ReplayDiscard, "known" })
	if done := finish(t, d, all.ID, 3); done.Done != 4 || done.Skipped != 0 {
		t.Errorf("%+v", done)
	}
	if got := resolved(t, d, letterOf(t, d, foreign).ID); got != "t discarded api:key1 known "+all.ID.String() {
		t.Error(got)
	}
	if n := ask[int](t, d, `SELECT count(*) FROM dead_letters WHERE resolved_at IS NULL`); n != 0 {
		t.Errorf("%d open", n)
	}
}

// What fails again is not sent again: its new dead letter is younger than the request.
func TestReplay_FailsAgain(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	id := giveUp(t, d, company, nil)
	for range 3 {
		giveUp(t, d, company, nil)
	}
	made := replay(t, d, &company, nil)
	if _, err := d.Store.WorkReplay(t.Context(), made.ID, 1, oneByOne(d)); err != nil {
		t.Fatal(err)
	}
	token := uuid.New()
	storetest.Apply(t, d, storetest.ClaimOf(company, id, token, "C"), storetest.FailedOf(id, token))
	if done := finish(t, d, made.ID, 1); done.Done != 4 {
		t.Errorf("%+v", done)
	}
	if got := ask[string](t, d, `SELECT status || ' ' || (SELECT count(*) FROM dead_letters WHERE outbox_id = o.id AND resolved_at IS NULL) FROM email_outbox o WHERE id = $1`, id); got != "FAILED 1" {
		t.Error(got)
	}
}

// A round whose commit never came is begun anew, and what it had done counts once.
func TestReplay_Interrupted(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	for range 5 {
		giveUp(t, d, company, nil)
	}
	made := replay(t, d, &company, nil)
	crash := errors.New("power cut")
	_, err := d.Store.WorkReplay(t.Context(), made.ID, 10, func(ctx context.Context, r deadletter.Replay, letters []deadletter.Letter) (deadletter.ReplayCounts, error) {
		// Meanwhile the replay is this process's alone.
		if round, err := d.Store.WorkReplay(ctx, made.ID, 10, oneByOne(d)); err != nil || round.ID != uuid.Nil {
			t.Errorf("a second process: %+v, %v", round, err)
		}
		n, err := oneByOne(d)(ctx, r, letters[:3])
		return n, errors.Join(crash, err)
	})
	if !errors.Is(err, crash) {
		t.Fatal(err)
	}
	if done := finish(t, d, made.ID, 10); done.Done != 5 || done.Skipped != 0 {
		t.Errorf("%+v", done)
	}
	if n := ask[int](t, d, `SELECT count(*) FROM email_events WHERE type = 'REPLAYED'`); n != 5 {
		t.Errorf("%d replayed", n)
	}
}

// The rate is what a second may hold, and a limit ends a replay before its filter does.
func TestReplay_RateAndLimit(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	for range 6 {
		giveUp(t, d, company, nil)
	}
	slow := replay(t, d, &company, func(n *deadletter.NewReplay) { n.Rate, n.Most = 4, 3 })
	round, err := d.Store.WorkReplay(t.Context(), slow.ID, 100, oneByOne(d))
	if err != nil || round.Now.Done != 2 || round.Finished || round.More || slow.Matched != 3 {
		t.Errorf("%+v, %v", round, err)
	}
	// Two of four per second: the next is due in half a second.
	if got := ask[bool](t, d, `SELECT next_at - created_at BETWEEN interval '0.4 s' AND interval '10 s' AND next_at > updated_at + interval '0.2 s' FROM dead_letter_replays WHERE id = $1`, slow.ID); !got {
		t.Error(ask[string](t, d, `SELECT r::text FROM dead_letter_replays r`))
	}
	run(t, d, `UPDATE dead_letter_replays SET next_at = now() + interval '1 h'`)
	if due, err := d.Store.DueReplays(t.Context()); err != nil || len(due) != 0 {
		t.Errorf("due: %v, %v", due, err)
	}
	run(t, d, `UPDATE dead_letter_replays SET next_at = now() - interval '1 h'`)
	if due, err := d.Store.DueReplays(t.Context()); err != nil || len(due) != 1 {
		t.Errorf("due: %v, %v", due, err)
	}
	round, err = d.Store.WorkReplay(t.Context(), slow.ID, 100, oneByOne(d))
	if err != nil || round.Now.Done != 1 || !round.Finished {
		t.Errorf("%+v, %v", round, err)
	}
	if round, err = d.Store.WorkReplay(t.Context(), slow.ID, 100, oneByOne(d)); err != nil || round.ID != uuid.Nil {
		t.Errorf("after its end: %+v, %v", round, err)
	}
	if n := ask[int](t, d, `SELECT count(*) FROM email_outbox WHERE status = 'PENDING'`); n != 3 {
		t.Errorf("%d sent again, want 3", n)
	}
}

func TestCleanReplays(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	old, running := replay(t, d, nil, nil), replay(t, d, nil, nil)
	finish(t, d, old.ID, 1)
	fresh := replay(t, d, nil, nil)
	finish(t, d, fresh.ID, 1)
	run(t, d, `UPDATE dead_letter_replays SET finished_at = finished_at - interval '31 days' WHERE id = $1`, old.ID)
	if n, err := d.Store.CleanReplays(t.Context(), 30*24*time.Hour, 100); n != 1 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	for _, id := range []uuid.UUID{running.ID, fresh.ID} {
		if _, err := d.Store.FindAnyReplay(t.Context(), id); err != nil {
			t.Error(err)
		}
	}
}

// A company runs ten replays at a time, however many requests there are at once. Operators are
// not bound, nor are other companies.
func TestCreateReplay_AtMostTenOfACompany(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company, other := d.Company(t), d.Company(t)
	const requests = 15
	errs := make(chan error, requests)
	for range requests {
		go func() {
			_, err := d.Store.CreateReplay(t.Context(), deadletter.NewReplay{
				ID: uuid.Must(uuid.NewV7()), CompanyID: &company, Action: deadletter.ReplayDiscard, RequestID: "req-1",
				Actor: audit.Actor{By: audit.ByAPI, Name: "key1"}, Rate: 1,
			})
			errs <- err
		}()
	}
	made := 0
	for range requests {
		switch err := <-errs; {
		case err == nil:
			made++
		case !errors.Is(err, deadletter.ErrTooManyReplays):
			t.Error(err)
		}
	}
	if made != deadletter.MaxRunningReplays {
		t.Errorf("%d run", made)
	}
	replay(t, d, &other, nil)
	replay(t, d, nil, nil)
	run(t, d, `UPDATE dead_letter_replays SET status = 'COMPLETED', finished_at = now() WHERE id = (SELECT id FROM dead_letter_replays WHERE company_id = $1 LIMIT 1)`, company)
	replay(t, d, &company, nil)
}

// Replays that have been due for longest come first.
func TestDueReplays(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	later, all, first := replay(t, d, &company, nil), replay(t, d, nil, nil), replay(t, d, &company, nil)
	run(t, d, `UPDATE dead_letter_replays SET next_at = now() - CASE id WHEN $1 THEN 3 WHEN $2 THEN 2 ELSE 1 END * interval '1 s'`, first.ID, all.ID)
	due, err := d.Store.DueReplays(t.Context())
	want := []deadletter.DueReplay{{ID: first.ID, CompanyID: company}, {ID: all.ID}, {ID: later.ID, CompanyID: company}}
	if diff := cmp.Diff(want, due); err != nil || diff != "" {
		t.Errorf("%v (-want +got)\n%s", err, diff)
	}
}

// A dead letter that another transaction has locked ends a round that discards it soon: the replays of other companies
// wait for that.
func TestWorkReplay_LockedDeadLetter(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	for range 3 {
		giveUp(t, d, company, nil)
	}
	made := replay(t, d, &company, func(n *deadletter.NewReplay) { n.Action = deadletter.ReplayDiscard })
	release := lock(t, d, `SELECT FROM dead_letters FOR UPDATE`)
	_, err := d.Store.WorkReplay(t.Context(), made.ID, 10, oneByOne(d))
	if !errors.Is(err, deadletter.ErrReplayLocked) {
		t.Errorf("while it is locked: %v", err)
	}
	release()
	if round, err := d.Store.WorkReplay(t.Context(), made.ID, 10, oneByOne(d)); err != nil || round.Now.Done != 3 {
		t.Errorf("after that: %+v, %v", round, err)
	}
}

// A round ends before a dead letter that retry leaves for later: its cursor and counts are those of the dead letters
// before it, the next round is due 5 s later, and what was retried behind it counts then, once.
func TestWorkReplay_Postponed(t *testing.T) {
	t.Parallel()
	for _, left := range []int{0, 2} {
		t.Run(fmt.Sprint(left, " before it"), func(t *testing.T) {
			t.Parallel()
			d := storetest.New(t)
			company := d.Company(t)
			for range 5 {
				giveUp(t, d, company, nil)
			}
			made := replay(t, d, &company, func(n *deadletter.NewReplay) { n.Most = 4 })
			round, err := d.Store.WorkReplay(t.Context(), made.ID, 10, func(ctx context.Context, r deadletter.Replay, letters []deadletter.Letter) (deadletter.ReplayCounts, error) {
				n, err := oneByOne(d)(ctx, r, letters[:left])
				if _, err := oneByOne(d)(ctx, r, letters[left+1:]); err != nil {
					t.Error(err)
				}
				return n, err
			})
			if err != nil || !round.Postponed || round.Finished || round.More || round.Now.Done != left {
				t.Errorf("%+v, %v", round, err)
			}
			if due := ask[bool](t, d, `SELECT next_at BETWEEN now() + interval '1 s' AND now() + interval '5 s' FROM dead_letter_replays`); !due {
				t.Error(ask[string](t, d, `SELECT r::text FROM dead_letter_replays r`))
			}
			if done := finish(t, d, made.ID, 10); done.Done != 4 || done.Skipped != 0 || done.Failed != 0 {
				t.Errorf("%+v", done)
			}
		})
	}
}
