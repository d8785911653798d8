package mailing

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jmoiron/sqlx"

	"email-gateway/shared/store/internal/pg"
	"email-gateway/shared/store/quota"
	"email-gateway/shared/store/sql"
)

// demand is what the mailing adds, with so many lines. Its own row is counted already: see
// ofOwnRow. The file of a dry run is not kept, but its entries hold the same data: they count
// as much as the file, for as long as a file is kept.
func (m *NewMailing) demand(counts Counts) quota.Demand {
	wanted := quota.Demand{quota.MailingRowsPerDay: int64(counts.Total), quota.StoredFileBytes: m.FileBytes}
	if m.DryRun {
		return wanted
	}
	wanted[quota.StoredBodyBytes] = m.templateBytes()
	for i := range m.Tests {
		for q, n := range m.Tests[i].Demand() {
			wanted[q] += n
		}
	}
	delete(wanted, quota.Recipients) // tests name a line's recipient
	return wanted
}

// templates returns the html and text to store: those of a dry run are never used.
func (m *NewMailing) templates() (html, text string) {
	if m.DryRun {
		return "", ""
	}
	return pg.WithoutNUL(m.HTML), pg.WithoutNUL(m.Text)
}

func (m *NewMailing) templateBytes() int64 {
	html, text := m.templates()
	return int64(len(html) + len(text))
}

// ofOwnRow is what the row of the mailing, QUEUED, adds to the use before the mailing is
// checked.
func (m *NewMailing) ofOwnRow() quota.Demand {
	return quota.Demand{quota.RunningMailings: 1, quota.StoredBodyBytes: m.templateBytes()}
}

// checkQuotas refuses a mailing that would exceed a quota. runs: it starts. Before
// the lines are read, a quick check without locks may refuse early, so that they need not be read.
// pg.ErrBusy: another transaction has locked the quotas.
func (in *ingest) checkQuotas(ctx context.Context, tx *sqlx.Tx, counts Counts, runs, quick bool) error {
	m := &in.mailing
	if !quick {
		if err := quota.Lock(ctx, tx, m.CompanyID); err != nil {
			return pg.Held(err)
		}
	}
	wanted := m.demand(counts)
	b, err := quota.OpenBudget(ctx, tx, m.CompanyID, wanted, true)
	if err != nil {
		return pg.Held(err)
	}
	b.GiveBack(m.ofOwnRow())
	if runs {
		wanted[quota.RunningMailings] = 1
	}
	return b.Take(wanted)
}

// checkRunning refuses to set a mailing going where as many run as may. The caller has
// locked the company's quotas, if that must be exact.
func checkRunning(ctx context.Context, tx *sqlx.Tx, company uuid.UUID) error {
	b, err := quota.OpenBudget(ctx, tx, company, nil, true)
	if err != nil {
		return err
	}
	return b.Take(quota.Demand{quota.RunningMailings: 1})
}

// Unlimited is a room that has no end.
const Unlimited int64 = -1

// Room is what mailings of a company may still make.
type Room struct {
	Emails     int64     // of the day, or Unlimited
	Recipients int64     // or Unlimited
	Until      time.Time // when the day is over
	// Paused: the reputation guard has paused the mailings of the company.
	Paused bool
}

// mailingsPausedSQL reads one row by primary key and locks nothing.
const mailingsPausedSQL = `SELECT mailings_paused_at IS NOT NULL FROM companies WHERE id = $1`

// FindMailingRoom returns what mailings of a company may make now.
func (s *Store) FindMailingRoom(ctx context.Context, company uuid.UUID) (Room, error) {
	use, err := quota.Read(ctx, s.db, company, false)
	if err != nil {
		return Room{}, err
	}
	room := Room{Emails: roomIn(use[quota.EmailsPerDay]), Recipients: roomIn(use[quota.Recipients])}
	if reset := use[quota.EmailsPerDay].Reset; reset != nil {
		room.Until = *reset
	}
	if err := s.db.GetContext(ctx, &room.Paused, mailingsPausedSQL, company); err != nil {
		return Room{}, fmt.Errorf("find out whether mailings are paused: %w", pg.Translate(err))
	}
	return room, nil
}

func roomIn(u quota.Use) int64 {
	if u.Limit == 0 {
		return Unlimited
	}
	return max(0, u.Limit-u.Use)
}

// Waiting is why a mailing waits, and until when.
type Waiting struct {
	For   quota.Quota
	Until time.Time // zero = until an operator resumes the company's mailings
}

// WaitsForReputation as the reason of a Waiting: the reputation guard has paused the mailings of the
// company.
const WaitsForReputation quota.Quota = "reputation"

// WaitsFor is what a mailing waits for at this time, a quota or WaitsForReputation, and until when; "" =
// nothing.
func (m Mailing) WaitsFor(now time.Time) Waiting {
	if m.CompanyPausedAt != nil {
		switch m.Status {
		case Queued, Pending, Processing, Sending:
			return Waiting{For: WaitsForReputation}
		}
	}
	if m.WaitingFor == nil || m.WaitingUntil == nil || !m.WaitingUntil.After(now) {
		return Waiting{}
	}
	switch m.Status {
	case Queued, Pending, Processing:
		return Waiting{For: quota.Quota(*m.WaitingFor), Until: m.WaitingUntil.UTC()}
	}
	return Waiting{}
}

// cancelUnstartedSQL goes along mailings_open, which holds mailings at work, and locks those
// that it changes, and their lanes (by the unique index of dispatch_lanes); one that somebody
// has locked is left for the next round. The EntryActionLoop cancels the entries.
const cancelUnstartedSQL = `
WITH due AS MATERIALIZED (
    SELECT id FROM mailings WHERE status = 'PAUSED' AND generation = 0 AND created_at < now() - $1 * interval '1 ms'
    ORDER BY id LIMIT $2 FOR UPDATE SKIP LOCKED
), cancelled AS (
    UPDATE mailings m SET status = 'CANCELLED', settling = 'cancel', settled_to = NULL, last_attempt = NULL, counted_at = NULL,
        error_message = 'it was never started', updated_at = now()
    FROM due WHERE m.id = due.id RETURNING m.id, m.company_id
), closed AS (
    UPDATE dispatch_lanes l SET paused_at = coalesce(l.paused_at, now())
    FROM cancelled c WHERE l.company_id = c.company_id AND l.queue = 'email:send:low' AND l.mailing_id = c.id
)
SELECT id FROM cancelled`

// CancelUnstarted cancels at most limit mailings that were uploaded longer ago than age, to
// be held, and have never been started. Their files can be deleted at once: see retention.Store.DueFiles.
func (s *Store) CancelUnstarted(ctx context.Context, age time.Duration, limit int) (int, error) {
	var cancelled []uuid.UUID
	err := pg.Write(func(args []any) error {
		cancelled = nil
		return s.db.SelectContext(ctx, &cancelled, cancelUnstartedSQL, args...)
	}, age.Milliseconds(), limit)
	if err != nil {
		return 0, fmt.Errorf("cancel mailings that were never started: %w", err)
	}
	return len(cancelled), nil
}

// sizedFile is the file of a mailing.
type sizedFile struct {
	mailing uuid.UUID
	bytes   int64
}

// sizeFilesParameters are the parameters of size_files.sql.
var sizeFilesParameters = pg.Parameters[struct{}, sizedFile]{
	Columns: []pg.Column[sizedFile]{
		pg.Each("id", "uuid", pg.UUIDs, func(f *sizedFile) uuid.UUID { return f.mailing }),
		pg.Each("bytes", "bigint", pg.BigInts, func(f *sizedFile) int64 { return f.bytes }),
	},
}

// SizeFiles writes down how many bytes the files of mailings have where that is not known.
func (s *Store) SizeFiles(ctx context.Context, mailings []uuid.UUID, bytes []int64) error {
	if len(mailings) != len(bytes) {
		return errors.New("size files: one size per mailing expected")
	}
	files := make([]sizedFile, len(mailings))
	for i := range files {
		files[i] = sizedFile{mailings[i], bytes[i]}
	}
	_, err := s.db.Exec(ctx, sql.SizeFiles, sizeFilesParameters.Arguments(struct{}{}, files)...)
	return pg.Wrap("size files", err)
}
