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
	"email-gateway/shared/store/file"
	"email-gateway/shared/uuidv7"
)

const (
	// orphanInterval may be long: an orphan only costs some storage. It is much longer than a usual lag of a standby, whose
	// promotion may restore the row of a file that was unused: rounds do not follow the deletion of the row, so that with a lag of
	// 5 s the file of 1 % of these rows is deleted already, and 2 % with two dispatchers.
	orphanInterval = 10 * time.Minute
	// orphanShare is how many times as long as its last round the sweeper rests: each round lists all files.
	orphanShare = 20
	// orphanAge is longer than the duration of any upload: the file is stored before the mailing is committed.
	orphanAge = time.Hour
	// unfinishedAge is longer, because S3 reports the start time of an upload that may still be
	// running.
	unfinishedAge = 24 * time.Hour
	// orphanBatch is how many files one statement checks.
	orphanBatch = 500

	mailingFiles = "mailings/"
	storedFiles  = file.Prefix
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
	MailingsWithFile(ctx context.Context, ids []uuid.UUID) (map[uuid.UUID]bool, error)
	SizeFiles(ctx context.Context, mailings []uuid.UUID, bytes []int64) error
}

// storedFile matches the key of a file for attachments: company and file.
var storedFile = regexp.MustCompile(`^files/[0-9a-f-]{36}/([0-9a-f-]{36})$`)

// FileRows reports which files for attachments exist; see *file.Store.
type FileRows interface {
	Exist(ctx context.Context, ids []uuid.UUID) (map[uuid.UUID]bool, error)
}

// OrphanSweeper deletes uploaded files that no row refers to: those of requests that failed or were killed after the
// file was stored, those of rows that the cleaner of unused files deleted, those of an erasure that was killed after it
// deleted the row, and those of a mailing whose row records that its file is deleted, which a rotation of keys that was
// killed may have stored again. It never deletes files with other names. It also records the size of files whose
// mailing row lacks it, such as those of the previous release.
type OrphanSweeper struct {
	*service.Loop
	log      *slog.Logger
	blobs    BlobStore
	mailings MailingStore
	files    FileRows
	deleted  prometheus.Counter
	failing  *failing
	next     time.Time // when the next round may begin
}

// OrphanSweeperParams configure an OrphanSweeper.
type OrphanSweeperParams struct {
	Log      *slog.Logger
	Blobs    BlobStore
	Mailings MailingStore
	Files    FileRows
	Registry prometheus.Registerer
}

// NewOrphanSweeper makes a sweeper that is not running yet.
func NewOrphanSweeper(p OrphanSweeperParams) *OrphanSweeper {
	s := &OrphanSweeper{
		log: p.Log, blobs: p.Blobs, mailings: p.Mailings, files: p.Files, failing: newFailing(p.Registry, "orphaned files"),
		deleted: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "storage_orphans_deleted_total", Help: "Uploaded files deleted because no mailing and no stored file refers to them, and aborted multipart uploads.",
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
	begun := time.Now()
	if begun.Before(s.next) {
		return false, nil
	}
	defer func() { s.next = time.Now().Add(orphanShare * time.Since(begun)) }()
	return s.failing.round(ctx, s.sweep)
}

func (s *OrphanSweeper) sweep(ctx context.Context) (more bool, err error) {
	var round swept
	err = errors.Join(
		s.sweepFiles(ctx, &round, mailingFiles, mailingFile, s.ofMailings),
		s.sweepFiles(ctx, &round, storedFiles, storedFile, func(ctx context.Context, batch map[uuid.UUID]blob.Object) (map[uuid.UUID]bool, error) {
			return s.files.Exist(ctx, idsOf(batch))
		}),
	)
	for _, prefix := range []string{mailingFiles, storedFiles} {
		if err == nil {
			var n int
			n, err = s.blobs.DropUnfinished(ctx, prefix, time.Now().Add(-unfinishedAge))
			round.unfinished += n
		}
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

// existsFunc reports which files of a batch have a row that refers to them.
type existsFunc func(ctx context.Context, batch map[uuid.UUID]blob.Object) (map[uuid.UUID]bool, error)

// sweepFiles checks all old files under prefix, in batches.
func (s *OrphanSweeper) sweepFiles(ctx context.Context, round *swept, prefix string, ours *regexp.Regexp, existing existsFunc) error {
	old := uuidv7.Now().Add(-orphanAge)
	batch := make(map[uuid.UUID]blob.Object, orphanBatch)
	for object, err := range s.blobs.List(ctx, prefix) {
		if err != nil {
			return err
		}
		id, named := idIn(ours, object.Key)
		if !named || !begun(id, object).Before(old) {
			continue
		}
		if _, twice := batch[id]; twice || len(batch) == orphanBatch {
			if err := s.sweepBatch(ctx, batch, round, existing); err != nil {
				return err
			}
			clear(batch)
		}
		batch[id] = object
	}
	return s.sweepBatch(ctx, batch, round, existing)
}

// ofMailings is the existsFunc of mailings. It also records the sizes of their files.
func (s *OrphanSweeper) ofMailings(ctx context.Context, batch map[uuid.UUID]blob.Object) (map[uuid.UUID]bool, error) {
	exist, err := s.mailings.MailingsWithFile(ctx, idsOf(batch))
	if err != nil {
		return nil, err
	}
	var named []uuid.UUID
	var sizes []int64
	for id, object := range batch {
		if exist[id] {
			named, sizes = append(named, id), append(sizes, object.Size)
		}
	}
	if len(named) == 0 {
		return exist, nil
	}
	return exist, s.mailings.SizeFiles(ctx, named, sizes)
}

func idsOf(batch map[uuid.UUID]blob.Object) []uuid.UUID {
	ids := make([]uuid.UUID, 0, len(batch))
	for id := range batch {
		ids = append(ids, id)
	}
	return ids
}

// sweepBatch deletes the files of a batch that have no row. It continues after a file that cannot be deleted.
func (s *OrphanSweeper) sweepBatch(ctx context.Context, batch map[uuid.UUID]blob.Object, round *swept, existing existsFunc) error {
	if len(batch) == 0 {
		return nil
	}
	exist, err := existing(ctx, batch)
	if err != nil {
		return err
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

// begun returns when an object came into the storage: when its upload began, or when it was copied there. Its id has
// the time of the upload by Postgres's clock, which is the dispatcher's too: the clock of the storage may be hours
// behind. Ids of other versions are not the api's.
func begun(id uuid.UUID, o blob.Object) time.Time {
	if id.Version() != 7 {
		return o.ModTime
	}
	uploaded := time.Unix(id.Time().UnixTime())
	if o.ModTime.After(uploaded) {
		return o.ModTime
	}
	return uploaded
}

func idIn(pattern *regexp.Regexp, key string) (id uuid.UUID, ours bool) {
	found := pattern.FindStringSubmatch(key)
	if found == nil {
		return uuid.Nil, false
	}
	id, err := uuid.Parse(found[1])
	return id, err == nil
}
