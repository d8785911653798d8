package maintenance

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"regexp"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"

	"email-gateway/shared/blob"
	"email-gateway/shared/service"
)

const (
	// orphanInterval may be long: an orphan only costs some storage.
	orphanInterval = 10 * time.Minute
	// orphanAge is longer than any upload may take: its file is stored before the mailing is
	// committed.
	orphanAge = time.Hour
	// unfinishedAge is longer, because S3 reports the start time of an upload that may still be
	// running.
	unfinishedAge = 24 * time.Hour
	// orphanBatch is how many files one statement checks.
	orphanBatch = 500

	mailingFiles = "mailings/"
)

// fileOf returns the key of a mailing's file; mailingFile parses it.
func fileOf(company, mailing uuid.UUID) string {
	return mailingFiles + company.String() + "/" + mailing.String() + ".csv"
}

// mailingFile matches the key of an uploaded file: company and mailing.
var mailingFile = regexp.MustCompile(`^mailings/[0-9a-f-]{36}/([0-9a-f-]{36})\.csv$`)

// BlobStore has the storage operations of the sweeper.
type BlobStore interface {
	List(ctx context.Context, prefix string) iter.Seq2[blob.Object, error]
	Delete(ctx context.Context, key string) error
	DropUnfinished(ctx context.Context, prefix string, before time.Time) (int, error)
}

// MailingStore has the database operations of the sweeper.
type MailingStore interface {
	MailingsExist(ctx context.Context, ids []uuid.UUID) (map[uuid.UUID]bool, error)
	SizeFiles(ctx context.Context, mailings []uuid.UUID, bytes []int64) error
}

// OrphanSweeper deletes uploaded files that no mailing refers to: those of requests that failed or
// were killed after the file was stored. It never deletes files under other names. It also records
// the size of files whose mailing row lacks it, such as those of the previous release.
type OrphanSweeper struct {
	*service.Loop
	log      *slog.Logger
	blobs    BlobStore
	mailings MailingStore
	deleted  prometheus.Counter
}

// OrphanSweeperParams configure an OrphanSweeper.
type OrphanSweeperParams struct {
	Log      *slog.Logger
	Blobs    BlobStore
	Mailings MailingStore
	Registry prometheus.Registerer
}

// NewOrphanSweeper makes a sweeper that is not running yet.
func NewOrphanSweeper(p OrphanSweeperParams) *OrphanSweeper {
	s := &OrphanSweeper{
		log: p.Log, blobs: p.Blobs, mailings: p.Mailings,
		deleted: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "storage_orphans_deleted_total", Help: "Uploaded files deleted because no mailing refers to them, and aborted multipart uploads.",
		}),
	}
	p.Registry.MustRegister(s.deleted)
	s.Loop = service.NewLoop(service.LoopParams{
		Log: p.Log, Interval: orphanInterval, RunOnce: s.runOnce, ErrorDelay: orphanInterval,
	})
	return s
}

// swept is the result of one round.
type swept struct {
	files, unfinished int
	bytes             int64
	failed            error // the first file that could not be deleted
}

func (s *OrphanSweeper) runOnce(ctx context.Context) (more bool, err error) {
	var round swept
	err = s.sweepFiles(ctx, &round)
	if err == nil {
		round.unfinished, err = s.blobs.DropUnfinished(ctx, mailingFiles, time.Now().Add(-unfinishedAge))
	}
	if n := round.files + round.unfinished; n > 0 {
		s.deleted.Add(float64(n))
		s.log.Info("orphaned files deleted", "count", round.files, "bytes", round.bytes, "unfinished", round.unfinished)
	}
	if err = errors.Join(err, round.failed); err != nil {
		return false, fmt.Errorf("sweep orphaned files: %w", err)
	}
	return false, nil
}

// sweepFiles holds one batch in memory, whatever the size of the storage.
func (s *OrphanSweeper) sweepFiles(ctx context.Context, round *swept) error {
	old := time.Now().Add(-orphanAge)
	batch := make(map[uuid.UUID]blob.Object, orphanBatch)
	for object, err := range s.blobs.List(ctx, mailingFiles) {
		if err != nil {
			return err
		}
		id, ours := mailingOf(object.Key)
		if !ours || !object.ModTime.Before(old) {
			continue
		}
		if _, twice := batch[id]; twice || len(batch) == orphanBatch {
			if err := s.sweepBatch(ctx, batch, round); err != nil {
				return err
			}
			clear(batch)
		}
		batch[id] = object
	}
	return s.sweepBatch(ctx, batch, round)
}

// sweepBatch continues after a file that cannot be deleted.
func (s *OrphanSweeper) sweepBatch(ctx context.Context, batch map[uuid.UUID]blob.Object, round *swept) error {
	if len(batch) == 0 {
		return nil
	}
	ids := make([]uuid.UUID, 0, len(batch))
	for id := range batch {
		ids = append(ids, id)
	}
	exist, err := s.mailings.MailingsExist(ctx, ids)
	if err != nil {
		return err
	}
	var named []uuid.UUID
	var sizes []int64
	for id, object := range batch {
		if exist[id] {
			named, sizes = append(named, id), append(sizes, object.Size)
		}
	}
	if len(named) > 0 {
		if err := s.mailings.SizeFiles(ctx, named, sizes); err != nil {
			return err
		}
	}
	for id, object := range batch {
		if exist[id] {
			continue
		}
		if err := s.blobs.Delete(ctx, object.Key); err != nil {
			if ctx.Err() != nil {
				return err
			}
			if round.failed == nil {
				round.failed = err
			}
			continue
		}
		round.files++
		round.bytes += object.Size
	}
	return nil
}

func mailingOf(key string) (id uuid.UUID, ours bool) {
	found := mailingFile.FindStringSubmatch(key)
	if found == nil {
		return uuid.Nil, false
	}
	id, err := uuid.Parse(found[1])
	return id, err == nil
}
