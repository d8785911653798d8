package mailing

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jmoiron/sqlx"

	"email-gateway/shared/store/internal/pg"
	"email-gateway/shared/store/internal/pgtext"
	"email-gateway/shared/store/quota"
	"email-gateway/shared/store/sql"
)

// demand returns what the mailing with these counts adds to the usage. The usage includes the
// mailing's own row already: see ofOwnRow. The file of a dry run is not kept, but its entries hold
// the same data: they count as many bytes as the file, for the retention of files.
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

// templates returns the HTML and text to store. A dry run stores none, because it never uses them.
func (m *NewMailing) templates() (html, text string) {
	if m.DryRun {
		return "", ""
	}
	return pgtext.WithoutNUL(m.HTML), pgtext.WithoutNUL(m.Text)
}

func (m *NewMailing) templateBytes() int64 {
	html, text := m.templates()
	return int64(len(html) + len(text))
}

// ofOwnRow returns what the mailing's row, inserted as QUEUED, adds to the usage before checkQuotas runs.
func (m *NewMailing) ofOwnRow() quota.Demand {
	return quota.Demand{quota.RunningMailings: 1, quota.StoredBodyBytes: m.templateBytes()}
}

// checkQuotas returns *quota.Error if the mailing would exceed a quota, and pg.ErrBusy if another
// transaction has locked the quotas. runs: the mailing starts. quick: check without the lock; this
// may refuse the mailing before its lines are read.
func (in *ingest) checkQuotas(ctx context.Context, tx *sqlx.Tx, counts Counts, runs, quick bool) error {
	m := &in.mailing
	if !quick {
		if err := quota.Lock(ctx, tx, m.CompanyID); err != nil {
			return pg.AsBusy(err)
		}
	}
	wanted := m.demand(counts)
	b, err := quota.OpenBudget(ctx, tx, m.CompanyID, wanted, true)
	if err != nil {
		return pg.AsBusy(err)
	}
	b.Release(m.ofOwnRow())
	if runs {
		wanted[quota.RunningMailings] = 1
	}
	if over := b.Exceeded(wanted); over != nil {
		return over
	}
	in.budget = b
	return nil
}

// checkRunning returns *quota.Error if the quota of running mailings is used up. The check is exact
// only if the caller has locked the company's quotas.
func checkRunning(ctx context.Context, tx *sqlx.Tx, company uuid.UUID) error {
	b, err := quota.OpenBudget(ctx, tx, company, nil, true)
	if err != nil {
		return err
	}
	return b.Take(quota.Demand{quota.RunningMailings: 1})
}

// Unlimited is the value of a Room's field without a limit.
const Unlimited int64 = -1

// Room is how many emails and recipients the mailings of a company may still create.
type Room struct {
	Emails     int64     // until the end of the day, or Unlimited
	Recipients int64     // or Unlimited
	Until      time.Time // the end of the day
	// Paused: the reputation guard has paused the mailings of the company.
	Paused bool
}

// mailingsPausedSQL reads one row by primary key and locks nothing.
const mailingsPausedSQL = `SELECT mailings_paused_at IS NOT NULL FROM companies WHERE id = $1`

// FindMailingRoom returns the current Room of a company.
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

// WaitsForReputation is the reason of a Waiting if the reputation guard has paused the mailings of
// the company.
const WaitsForReputation quota.Quota = "reputation"

// WaitsFor returns what the mailing waits for now, a quota or WaitsForReputation, and until when. For
// is "" if the mailing does not wait.
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

// sizedFile is the size of a mailing's file.
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

// SizeFiles stores the sizes of the files of mailings whose size is unknown.
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
