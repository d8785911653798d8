package store_test

import (
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"email-gateway/shared/store"
	"email-gateway/shared/store/idempotency"
	"email-gateway/shared/store/mailing"
	"email-gateway/shared/store/storetest"
)

// halted yields a line, closes reached, and ends with the error received from end.
func halted(reached chan<- struct{}, end <-chan error) iter.Seq2[mailing.Line, error] {
	return func(yield func(mailing.Line, error) bool) {
		if !yield(mailing.Line{Entry: storetest.NewEntry(2)}, nil) {
			return
		}
		close(reached)
		if err := <-end; err != nil {
			yield(mailing.Line{}, err)
		}
	}
}

// A second upload with the same key, or the same filename, waits for the first before
// it reads a line, and returns according to its outcome.
func TestIngestMailing_WaitsForTheFirst(t *testing.T) {
	t.Parallel()
	for _, same := range []string{"key", "filename"} {
		for _, torn := range []error{nil, errors.New("torn")} {
			t.Run(fmt.Sprintf("same %s, first %v", same, torn), func(t *testing.T) {
				t.Parallel()
				d := storetest.New(t)
				company := d.Company(t)
				sameName := func(m *mailing.NewMailing) {
					if same == "key" {
						m.Key = keyFor("k")
					} else {
						m.Filename = "natal.csv"
					}
				}
				first, second := storetest.NewMailing(company, sameName), storetest.NewMailing(company, sameName)
				reached, end, done := make(chan struct{}), make(chan error, 1), make(chan error, 2)
				go func() {
					_, _, err := d.Store.IngestMailing(t.Context(), first, halted(reached, end))
					done <- err
				}()
				<-reached
				result := make(chan error, 1)
				var read atomic.Bool
				go func() {
					_, _, err := d.Store.IngestMailing(t.Context(), second, func(yield func(mailing.Line, error) bool) {
						read.Store(true)
						storetest.Lines(3)(yield)
					})
					result <- err
				}()
				storetest.WaitBlocked(t, d, 1)
				if read.Load() {
					t.Error("the second upload read lines while the first was in progress")
				}
				end <- torn
				if err := <-done; !errors.Is(err, torn) {
					t.Fatalf("first upload: %v, want %v", err, torn)
				}
				err := <-result
				if torn != nil {
					if err != nil {
						t.Errorf("second: %v", err)
					}
					return
				}
				var key *idempotency.UsedError
				var name *mailing.FilenameUsedError
				switch {
				case same == "key" && !errors.As(err, &key):
					t.Errorf("second: %v", err)
				case same == "filename" && !errors.As(err, &name):
					t.Errorf("second: %v", err)
				case name != nil:
					want := mailing.FilenameUsedError{MailingID: first.ID, RequestSHA256: first.RequestSHA256, Answer: ask[[]byte](t, d, `SELECT answer FROM mailings`)}
					if diff := cmp.Diff(want, *name); diff != "" {
						t.Error(diff)
					}
				}
				if read.Load() {
					t.Error("the second upload read its lines although it was rejected")
				}
			})
		}
	}
}

// The wait for a long upload has a limit.
func TestIngestMailing_InProgress(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	sameName := func(m *mailing.NewMailing) { m.Filename = "natal.csv" }
	reached, end, done := make(chan struct{}), make(chan error), make(chan error, 1)
	go func() {
		_, _, err := d.Store.IngestMailing(t.Context(), storetest.NewMailing(company, sameName), halted(reached, end))
		done <- err
	}()
	<-reached
	if _, _, err := d.Store.IngestMailing(t.Context(), storetest.NewMailing(company, sameName), storetest.Lines(1)); !errors.Is(err, idempotency.ErrInProgress) || errors.Is(err, store.ErrUnavailable) {
		t.Errorf("got %v", err)
	}
	close(end)
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// Of many uploads with one filename at once, exactly one is accepted. The others wait for it and
// get its error, or ErrInProgress, where too many wait already or it takes too long: such a client
// repeats its request.
func TestIngestMailing_ManyWithOneFilename(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company, other := d.Company(t), d.Company(t)
	ingest := func() error {
		m := storetest.NewMailing(company, func(m *mailing.NewMailing) { m.Filename = "natal.csv" })
		_, _, err := d.Store.IngestMailing(t.Context(), m, storetest.Lines(2000))
		return err
	}
	var wg sync.WaitGroup
	var accepted, refused atomic.Int64
	for range 8 {
		wg.Go(func() {
			err := ingest()
			for errors.Is(err, idempotency.ErrInProgress) && !store.IsOutage(err) {
				err = ingest()
			}
			var used *mailing.FilenameUsedError
			switch {
			case err == nil:
				accepted.Add(1)
			case errors.As(err, &used):
				refused.Add(1)
			default:
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if entries := ask[int](t, d, `SELECT count(*) FROM mailing_entries`); accepted.Load() != 1 || refused.Load() != 7 || entries != 2000 {
		t.Errorf("%d accepted, %d refused, %d entries", accepted.Load(), refused.Load(), entries)
	}
	named := func(dry bool) func(*mailing.NewMailing) {
		return func(m *mailing.NewMailing) { m.Filename, m.DryRun = "natal.csv", dry }
	}
	d.Mailing(t, other, 1, named(false)) // another company's name
	d.Mailing(t, company, 1, named(true))
	for _, status := range []string{"CANCELLED", "FAILED"} { // both release the filename
		run(t, d, `UPDATE mailings SET status = $1 WHERE company_id = $2 AND NOT dry_run`, status, company)
		d.Mailing(t, company, 1, named(false))
	}
}

// Concurrent controls: each is applied completely or rejected, and at the end lane, jobs and status agree.
func TestMailingControl_ManyAtOnce(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	id := d.Mailing(t, company, 1, nil)
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			dice := rand.New(rand.NewPCG(1, uint64(i)))
			for range 25 {
				control := []func() (mailing.Mailing, error){
					func() (mailing.Mailing, error) { return d.Store.PauseMailing(t.Context(), company, id) },
					func() (mailing.Mailing, error) { return d.Store.ResumeMailing(t.Context(), company, id) },
					func() (mailing.Mailing, error) { return d.Store.StartMailing(t.Context(), company, id) },
				}[dice.IntN(3)]
				var refused *mailing.StateError
				if _, err := control(); err != nil && !errors.As(err, &refused) {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	agree := `SELECT (m.status IN ('PAUSED', 'CANCELLED')) = (l.paused_at IS NOT NULL)
		AND m.generation = (SELECT count(*) FROM email_outbox WHERE target = 'mailing.process')
		AND m.generation = (SELECT max((payload ->> 'generation')::int) FROM email_outbox WHERE target = 'mailing.process')
		FROM mailings m JOIN dispatch_lanes l ON l.mailing_id = m.id`
	if !ask[bool](t, d, agree) {
		t.Error("lane, jobs and status do not agree")
	}
	if _, err := d.Store.CancelMailing(t.Context(), company, id); err != nil || !ask[bool](t, d, agree) {
		t.Errorf("cancelled: %v", err)
	}
}

// A control waits for the batch that the mailing's job is writing, and is applied to the result of that batch.
func TestMailingControl_WaitsForABatch(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	id := d.Mailing(t, company, 1, nil)
	tx, err := d.SQL.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	if _, err := tx.ExecContext(t.Context(), `UPDATE mailings SET status = 'SENDING', expanded_at = now(), processed_lines = 1 WHERE id = $1`, id); err != nil {
		t.Fatal(err)
	}
	result := make(chan mailing.Mailing, 1)
	go func() {
		m, err := d.Store.PauseMailing(t.Context(), company, id)
		if err != nil {
			t.Error(err)
		}
		result <- m
	}()
	storetest.WaitBlocked(t, d, 1)
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	if m := <-result; m.Status != mailing.Paused || m.Processed != 1 || m.ExpandedAt == nil {
		t.Errorf("%+v", m)
	}
	m, err := d.Store.ResumeMailing(t.Context(), company, id)
	if jobs := ask[int](t, d, `SELECT count(*) FROM email_outbox`); err != nil || m.Status != mailing.Sending || jobs != 1 {
		t.Errorf("resumed: %s, %v, %d jobs", m.Status, err, jobs)
	}
	if _, err := d.Store.PauseMailing(t.Context(), company, uuid.New()); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("unknown mailing: %v", err)
	}
}
