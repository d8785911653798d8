package store_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"testing"
	"time"

	"github.com/google/uuid"

	"email-gateway/shared/store"
	"email-gateway/shared/store/mailing"
	"email-gateway/shared/store/storetest"
)

// An upload that is interrupted for any reason leaves nothing, and the store remains usable, with the same connection or another.
func TestIngestMailing_AllOrNothing(t *testing.T) {
	t.Parallel()
	broken := errors.New("the file is torn")
	for name, tt := range map[string]struct {
		lines func(t *testing.T, d storetest.Database, cancel func()) iter.Seq2[mailing.Line, error]
		want  error // nil = any
	}{
		"the lines end with an error": {want: broken, lines: func(*testing.T, storetest.Database, func()) iter.Seq2[mailing.Line, error] {
			return midway(func() (mailing.Line, error) { return mailing.Line{}, broken })
		}},
		"the caller gives up": {want: context.Canceled, lines: func(_ *testing.T, _ storetest.Database, cancel func()) iter.Seq2[mailing.Line, error] {
			return midway(func() (mailing.Line, error) { cancel(); return entry(5000, "late@example.com", ""), nil })
		}},
		"Postgres ends the connection": {want: store.ErrUnavailable, lines: func(t *testing.T, d storetest.Database, _ func()) iter.Seq2[mailing.Line, error] {
			return midway(func() (mailing.Line, error) {
				storetest.WaitFor(t, d, `SELECT count(*) = 1 FROM pg_stat_activity WHERE datname = current_database() AND query LIKE '%COPY mailing_entries%' AND pid <> pg_backend_pid()`)
				run(t, d, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND query LIKE '%COPY mailing_entries%' AND pid <> pg_backend_pid()`)
				return entry(5000, "late@example.com", ""), nil
			})
		}},
		"a row that Postgres refuses": {lines: func(*testing.T, storetest.Database, func()) iter.Seq2[mailing.Line, error] {
			return midway(func() (mailing.Line, error) { return entry(5000, "late@example.com", "ugly"), nil })
		}},
		"a held row that Postgres refuses": {lines: func(*testing.T, storetest.Database, func()) iter.Seq2[mailing.Line, error] {
			return midway(func() (mailing.Line, error) { return entry(5000, "user3@example.com", "ugly"), nil })
		}},
		"lines that do not ascend": {lines: func(*testing.T, storetest.Database, func()) iter.Seq2[mailing.Line, error] {
			return midway(func() (mailing.Line, error) { return entry(7, "late@example.com", ""), nil })
		}},
		"ids that do not ascend": {lines: func(*testing.T, storetest.Database, func()) iter.Seq2[mailing.Line, error] {
			return midway(func() (mailing.Line, error) {
				line := entry(5000, "late@example.com", "")
				line.Entry.ID = uuid.MustParse("01900000-0000-7000-8000-000000000001")
				return line, nil
			})
		}},
		"a line that is neither": {lines: func(*testing.T, storetest.Database, func()) iter.Seq2[mailing.Line, error] {
			return midway(func() (mailing.Line, error) { return mailing.Line{}, nil })
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := storetest.New(t)
			company := d.Company(t)
			s := open(t, d.URL, store.Options{MaxConns: 1})
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			m := storetest.NewMailing(company, func(m *mailing.NewMailing) { m.Key = keyFor("k") })
			_, _, err := s.IngestMailing(ctx, m, tt.lines(t, d, cancel))
			if err == nil || tt.want != nil && !errors.Is(err, tt.want) || tt.want == broken && err != broken { //nolint:errorlint // as it is
				t.Errorf("got %v, want %v", err, tt.want)
			}
			nothingWritten(t, d)
			if exists, err := s.MailingExists(t.Context(), m.ID); exists || err != nil {
				t.Errorf("MailingExists = %v, %v, want false", exists, err)
			}
			if _, _, err := s.IngestMailing(t.Context(), m, storetest.Lines(3)); err != nil {
				t.Errorf("another try: %v", err)
			}
			if n := ask[int](t, d, `SELECT count(*) FROM mailing_entries`); n != 3 {
				t.Errorf("%d entries after another try, want 3", n)
			}
		})
	}
}

// midway yields 2,500 good lines, then what happens in the middle, then as many more.
func midway(happens func() (mailing.Line, error)) iter.Seq2[mailing.Line, error] {
	return func(yield func(mailing.Line, error) bool) {
		for line, err := range storetest.Lines(2500) {
			if !yield(line, err) {
				return
			}
		}
		if !yield(happens()) {
			return
		}
		for n := range 20000 {
			if !yield(entry(6000+n, fmt.Sprintf("after%d@example.com", n), ""), nil) {
				return
			}
		}
	}
}

// The response to COMMIT is lost: IngestMailing returns ErrUnknownOutcome, and MailingExists returns true.
func TestIngestMailing_UnknownOutcome(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	p := storetest.NewProxy(t, d)
	s := open(t, p.URL, store.Options{})
	m := storetest.NewMailing(company, func(m *mailing.NewMailing) { m.DryRun = true })
	answer := m.Answer
	m.Answer = func(n mailing.Counts) ([]byte, error) {
		p.CutAnswer(2) // one for the mailing's row, one for COMMIT
		return answer(n)
	}
	counts, got, err := s.IngestMailing(t.Context(), m, storetest.Lines(10))
	if !errors.Is(err, store.ErrUnknownOutcome) {
		t.Fatalf("got %v", err)
	}
	if exists, err := d.Store.MailingExists(t.Context(), m.ID); !exists || err != nil {
		t.Errorf("MailingExists = %v, %v, want true", exists, err)
	}
	if counts.Accepted != 10 || len(got) == 0 {
		t.Errorf("counted %+v, answer %s", counts, got)
	}
	if n := ask[int](t, d, `SELECT count(*) FROM mailing_entries`); n != 10 {
		t.Errorf("%d entries", n)
	}
}

// An upload may take longer than the statement timeout.
func TestIngestMailing_LongerThanAStatementMayRun(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	s := open(t, d.URL, store.Options{StatementTimeout: 600 * time.Millisecond})
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	_, _, err := s.IngestMailing(t.Context(), storetest.NewMailing(company, nil), func(yield func(mailing.Line, error) bool) {
		for line, err := range storetest.Lines(120) {
			<-tick.C
			if !yield(line, err) {
				return
			}
		}
	})
	if n := ask[int](t, d, `SELECT count(*) FROM mailing_entries`); err != nil || n != 120 {
		t.Errorf("%d entries, %v", n, err)
	}
}

// A caller whose context ends while it waits for a connection returns immediately.
func TestIngestMailing_GivenUpBeforeItBegan(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	s := open(t, d.URL, store.Options{MaxConns: 1})
	reached, end, done := make(chan struct{}), make(chan error), make(chan error, 1)
	go func() {
		_, _, err := s.IngestMailing(t.Context(), storetest.NewMailing(company, nil), halted(reached, end))
		done <- err
	}()
	<-reached
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, _, err := s.IngestMailing(ctx, storetest.NewMailing(company, nil), storetest.Lines(1)); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
	close(end)
	if err := <-done; err != nil {
		t.Error(err)
	}
	before := ask[int](t, d, `SELECT count(*) FROM mailings`)
	if _, _, err := s.IngestMailing(t.Context(), storetest.NewMailing(company, nil), storetest.Lines(1)); err != nil || before != 1 {
		t.Errorf("%d mailings, then %v", before, err)
	}
}
