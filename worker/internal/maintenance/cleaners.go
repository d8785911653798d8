package maintenance

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/google/uuid"

	"email-gateway/shared/service"
	"email-gateway/shared/store/file"
	"email-gateway/shared/store/retention"
	"email-gateway/shared/store/tenant"
)

// Ages are the retention times; 0 = unlimited. Logs are kept at least as long as outbox rows.
type Ages struct {
	Outbox, Bodies, Files, Entries, Logs, Events, Hashes, DeletedRecipients time.Duration
	// Unstarted is the age at which a mailing that was never started is cancelled.
	Unstarted time.Duration
}

// CleanStore has the database operations of the cleaners.
type CleanStore interface {
	KeyStore
	FeedbackStore
	DeadLetterStore
	AuditStore
	CancelUnstarted(ctx context.Context, age time.Duration, limit int) (int, error)
	CancelDiscarded(ctx context.Context, limit int) (int, error)
	Retentions(ctx context.Context) ([]tenant.Retention, error)
}

// RetentionStore deletes data after its retention; see *retention.Store.
type RetentionStore interface {
	CheckClock(ctx context.Context, host func() time.Time) error
	CleanRecipients(ctx context.Context, age time.Duration, limit int) (int, error)
	PurgeOutbox(ctx context.Context, age time.Duration, limit int) (retention.Cleaned, error)
	EraseBodies(ctx context.Context, age time.Duration, limit int) (retention.Cleaned, error)
	EraseCompanyBodies(ctx context.Context, company uuid.UUID, age time.Duration, limit int) (retention.Cleaned, error)
	PurgeLogs(ctx context.Context, age time.Duration, limit int) (retention.Cleaned, error)
	PurgeCompanyLogs(ctx context.Context, company uuid.UUID, age time.Duration, limit int) (retention.Cleaned, error)
	PurgeEvents(ctx context.Context, age time.Duration, limit int) (retention.Cleaned, error)
	PurgeAggregates(ctx context.Context, age time.Duration, limit int) (retention.Cleaned, error)
	PurgeEntries(ctx context.Context, age time.Duration, limit int) (retention.Cleaned, error)
	EraseEntryValues(ctx context.Context, age time.Duration, limit int) (retention.Cleaned, error)
	EraseTemplates(ctx context.Context, age time.Duration, limit int) (retention.Cleaned, error)
	EraseEntryHashes(ctx context.Context, age time.Duration, limit int) (retention.Cleaned, error)
	EraseOutboxHashes(ctx context.Context, age time.Duration, limit int) (retention.Cleaned, error)
	EraseRecipientHashes(ctx context.Context, age time.Duration, limit int) (retention.Cleaned, error)
	DueFiles(ctx context.Context, age time.Duration, after retention.MailingFile, limit int) ([]retention.MailingFile, error)
	MarkFilesDeleted(ctx context.Context, mailings []uuid.UUID) (int, error)
}

// CleanersParams make the Cleaners.
type CleanersParams struct {
	Log       *slog.Logger
	Store     CleanStore
	Retention RetentionStore
	Feed      EventFeedStore
	Webhooks  WebhookStore
	Stored    StoredFiles
	Archive   Archive
	Files     Files
	Actions   *Actions
	Ages      Ages
	Now       func() time.Time // of this machine; nil = time.Now
}

// NewCleaners makes a cleaner for each kind of data with a retention.
func NewCleaners(p CleanersParams) []service.Named {
	kinds := []kind{
		idempotencyKeys(p.Store), notifications(p.Store), deadLetters(p.Store), replays(p.Store), webhooks(p.Webhooks), auditRows(p.Store), eventFeed(p.Feed),
		{"bodies", bodyExpired, p.bodies},
		{"logs", logExpired, p.logs},
		{"aggregates", aggregateExpired, always(aged(p.Ages.Logs, p.Retention.PurgeAggregates))},
		{"hashes", hashExpired, p.hashes},
		{"mailing values", valueExpired, always(aged(p.Ages.Bodies, p.Retention.EraseEntryValues))},
		{"mailing templates", templateExpired, always(aged(p.Ages.Bodies, p.Retention.EraseTemplates))},
		{"mailing entries", entryExpired, always(aged(p.Ages.Entries, p.Retention.PurgeEntries))},
	}
	if p.Ages.Outbox > 0 {
		kinds = append(kinds, kind{"outbox rows", rowExpired, always(aged(p.Ages.Outbox, p.Retention.PurgeOutbox))})
	}
	if p.Ages.Events > 0 && p.Ages.Events != p.Ages.Logs {
		kinds = append(kinds, kind{"events", eventExpired, always(aged(p.Ages.Events, p.Retention.PurgeEvents))})
	}
	if p.Ages.Unstarted > 0 {
		kinds = append(kinds, kind{"mailings never started", mailingCancelled, always(older(p.Ages.Unstarted, p.Store.CancelUnstarted))})
	}
	if p.Ages.DeletedRecipients > 0 {
		kinds = append(kinds, kind{"deleted recipients", recipientExpired, always(older(p.Ages.DeletedRecipients, p.Retention.CleanRecipients))})
	}
	if p.Files != nil {
		kinds = append(kinds, kind{"mailing files", fileExpired, always((&fileCleaner{CleanersParams: p}).batch)}, kind{"unused files", storedFileDeleted, always((&unusedFiles{p.Stored, file.FromOldest()}).batch)})
	}
	if p.Now == nil {
		p.Now = time.Now
	}
	var cleaners []service.Named
	every := func(interval time.Duration, k kind, check func(context.Context) error) {
		cleaners = append(cleaners, service.Named{Name: "cleaner of " + k.name, Service: newCleaner(p.Log, p.Actions, interval, k, check)})
	}
	for _, k := range kinds {
		every(cleanInterval, k, func(ctx context.Context) error { return p.Retention.CheckClock(ctx, p.Now) })
	}
	// Redis's archive does not expire by Postgres's clock.
	every(cleanInterval, archivedTasks(p.Archive), nil)
	every(trimInterval, archiveSize(p.Archive), nil)
	// Without an age: the end of their dead letters decides.
	every(discardedInterval, kind{"failed mailings", failedCancelled, always(limited(p.Store.CancelDiscarded))}, nil)
	return cleaners
}

// bodies returns a scan of all companies, unless the outbox rows expire at the same time, and one
// for each company with its own retention.
func (p CleanersParams) bodies(ctx context.Context) (batches []batch, err error) {
	shorter := func(age time.Duration) bool { return age > 0 && (p.Ages.Outbox == 0 || age < p.Ages.Outbox) }
	if shorter(p.Ages.Bodies) {
		batches = append(batches, aged(p.Ages.Bodies, p.Retention.EraseBodies))
	}
	return p.perCompany(ctx, batches, p.Retention.EraseCompanyBodies, func(r tenant.Retention) (time.Duration, bool) {
		age := days(r.Bodies)
		return age, shorter(age)
	})
}

// logs returns a scan of the logs that remain when a partition of a month is dropped, and one for each company with its own
// retention.
func (p CleanersParams) logs(ctx context.Context) (batches []batch, err error) {
	if p.Ages.Logs > 0 {
		batches = append(batches, aged(p.Ages.Logs, p.Retention.PurgeLogs))
	}
	return p.perCompany(ctx, batches, p.Retention.PurgeCompanyLogs, func(r tenant.Retention) (time.Duration, bool) {
		age := days(r.Logs)
		return age, age > 0
	})
}

// hashes returns a scan of each table with hashes, which applies the retention of each company; none if no retention is set.
// The outbox is scanned only if its rows are kept for longer than the hashes.
func (p CleanersParams) hashes(ctx context.Context) ([]batch, error) {
	all, err := p.Store.Retentions(ctx)
	if err != nil {
		return nil, err
	}
	shortest := p.Ages.Hashes
	for _, r := range all {
		if own := days(r.Hashes); own > 0 && (shortest == 0 || own < shortest) {
			shortest = own
		}
	}
	if shortest == 0 {
		return nil, nil
	}
	batches := []batch{aged(p.Ages.Hashes, p.Retention.EraseRecipientHashes), aged(p.Ages.Hashes, p.Retention.EraseEntryHashes)}
	if p.Ages.Outbox == 0 || shortest < p.Ages.Outbox {
		batches = append(batches, aged(p.Ages.Hashes, p.Retention.EraseOutboxHashes))
	}
	return batches, nil
}

func (p CleanersParams) perCompany(
	ctx context.Context, batches []batch,
	clean func(context.Context, uuid.UUID, time.Duration, int) (retention.Cleaned, error),
	ageOf func(tenant.Retention) (time.Duration, bool),
) ([]batch, error) {
	all, err := p.Store.Retentions(ctx)
	for _, r := range all {
		if age, ok := ageOf(r); ok {
			batches = append(batches, aged(age, func(ctx context.Context, age time.Duration, limit int) (retention.Cleaned, error) {
				return clean(ctx, r.CompanyID, age, limit)
			}))
		}
	}
	return batches, err
}

// days converts a company's retention; 0 = it has none.
func days(n *int) time.Duration {
	if n == nil {
		return 0
	}
	return time.Duration(*n) * 24 * time.Hour
}

// Files is the storage of uploaded files.
type Files interface {
	Delete(ctx context.Context, key string) error
}

// StoredFiles are the rows about files for attachments; see *file.Store.
type StoredFiles interface {
	DeleteUnused(ctx context.Context, age time.Duration, after file.Position, page int) (deleted int, next file.Position, err error)
}

// unusedAge is how long a file that no email attaches is kept after its last upload: a day, and the hour within which
// further uploads are not recorded.
const unusedAge = 25 * time.Hour

// unusedPage is how many files a batch reads: to read and lock 1,000 takes some 50 ms.
const unusedPage = 1000

// unusedFiles deletes files that no email attaches, and each round looks at each file once. It deletes only the rows; the orphan
// sweeper deletes the objects at its next round, 0 to 10 minutes later. The promotion of a standby that lacks the commit restores
// a row, whose object is then most likely still there: an email may attach the file again.
type unusedFiles struct {
	stored StoredFiles
	after  file.Position
}

func (u *unusedFiles) batch(ctx context.Context) (retention.Cleaned, error) {
	gone, next, err := u.stored.DeleteUnused(ctx, unusedAge, u.after, unusedPage)
	u.after = next
	return retention.Cleaned{Count: gone, More: err == nil && next != file.FromOldest()}, err
}

// fileBatch is how many files are deleted before a commit records that. Deleting a file twice does no harm.
const fileBatch = 100

// maxBatchesWithoutDelete is after how many batches without a deletion a round ends: the storage is most likely unavailable.
const maxBatchesWithoutDelete = 10

// fileCleaner deletes uploaded files after their retention. It continues behind a file that cannot be deleted, and tries it again
// when it has reached the last file. The errors are reported as one at the end of a round.
type fileCleaner struct {
	CleanersParams
	after                retention.MailingFile // the last file that was tried; zero = none
	kept                 int                   // files of this round that cannot be deleted
	first                error                 // of these files
	batchesWithoutDelete int                   // consecutive batches without a deletion
}

func (f *fileCleaner) batch(ctx context.Context) (retention.Cleaned, error) {
	due, err := f.Retention.DueFiles(ctx, f.Ages.Files, f.after, fileBatch)
	deleted := make([]uuid.UUID, 0, len(due))
	for _, next := range due {
		f.after = next
		if failed := f.Files.Delete(ctx, fileOf(next.CompanyID, next.MailingID)); failed == nil {
			deleted = append(deleted, next.MailingID)
		} else if f.kept++; f.first == nil {
			f.first = failed
		}
	}
	n := 0
	if f.batchesWithoutDelete++; len(deleted) > 0 {
		f.batchesWithoutDelete = 0
		var failed error
		n, failed = f.Retention.MarkFilesDeleted(ctx, deleted)
		err = errors.Join(err, failed)
	}
	if len(due) < fileBatch {
		f.after = retention.MailingFile{}
	}
	more := len(due) == fileBatch && err == nil && ctx.Err() == nil && f.batchesWithoutDelete < maxBatchesWithoutDelete
	if !more {
		if f.first != nil {
			err = errors.Join(err, fmt.Errorf("%d files cannot be deleted, the first because of: %w", f.kept, f.first))
		}
		f.kept, f.first, f.batchesWithoutDelete = 0, nil, 0
	}
	return retention.Cleaned{Count: n, More: more}, err
}
