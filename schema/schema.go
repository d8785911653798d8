// Package schema is the shape of the database: the migrations, embedded, and how
// they are applied. The migrate command and the test kit of shared/store use it, and
// gatewayctl asks for the newest; the programs expect a database that is already in shape.
package schema

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/pressly/goose/v3"
)

//go:embed migrations/*.sql
var migrations embed.FS

const (
	// busyTimeout is how long a migration is repeated after it first failed to get its locks.
	// Running programs hold theirs for milliseconds; a backup holds its own for hours.
	busyTimeout  = time.Minute
	busyInterval = 5 * time.Second // what waited behind the migration passes meanwhile
)

// Up brings the database to the newest version. Any number of callers may run it
// at once: a lock lets one work and the others find it done. Programs may run meanwhile: a
// migration that lost a table's lock to them is run again, for up to a minute after it first
// did. What that one had done is undone, or is found done.
func Up(ctx context.Context, db *sql.DB) error {
	p, err := provider(db)
	if err != nil {
		return err
	}
	var busy retry
	for {
		_, err = p.Up(ctx)
		if err == nil {
			return nil
		}
		// A migration without a transaction that failed leaves its lock_timeout on its session,
		// and the next one may be an index, which waits for as long as it takes.
		closeIdle(db)
		err = fmt.Errorf("migrate up: %w", err)
		if !busy.again(err, time.Now()) {
			return err
		}
		select {
		case <-time.After(busyInterval):
		case <-ctx.Done():
			return err
		}
	}
}

// retry bounds how long one migration is run again.
type retry struct {
	version int64
	until   time.Time
}

// again: the migration lost a lock, less than busyTimeout after it first did.
func (r *retry) again(err error, now time.Time) bool {
	if !lostLock(err) {
		return false
	}
	var version int64 // 0 is none: the lock of all migrations
	if failed, ok := errors.AsType[*goose.PartialError](err); ok {
		version = failed.Failed.Source.Version
	}
	if r.until.IsZero() || r.version != version {
		r.version, r.until = version, now.Add(busyTimeout)
	}
	return now.Before(r.until)
}

// closeIdle closes the sessions that nobody uses.
func closeIdle(db *sql.DB) {
	const usual = 2 // database/sql's default
	db.SetMaxIdleConns(0)
	db.SetMaxIdleConns(usual)
}

// lostLock: Postgres ended the statement for the sake of another transaction that held a lock,
// because lock_timeout was over or because both waited for each other.
func lostLock(err error) bool {
	var refused interface{ SQLState() string }
	return errors.As(err, &refused) && (refused.SQLState() == lockNotAvailable || refused.SQLState() == deadlockDetected)
}

// Down takes back the newest migration, with the data its tables held.
func Down(ctx context.Context, db *sql.DB) error {
	p, err := provider(db)
	if err != nil {
		return err
	}
	if _, err := p.Down(ctx); err != nil {
		return fmt.Errorf("migrate down: %w", err)
	}
	return nil
}

// Step is one migration and whether the database has it.
type Step struct {
	Version int64
	File    string
	Applied bool
}

// Status lists every migration in order.
func Status(ctx context.Context, db *sql.DB) ([]Step, error) {
	p, err := provider(db)
	if err != nil {
		return nil, err
	}
	found, err := p.Status(ctx)
	if err != nil {
		return nil, fmt.Errorf("migration status: %w", err)
	}
	steps := make([]Step, len(found))
	for i, s := range found {
		steps[i] = Step{Version: s.Source.Version, File: s.Source.Path, Applied: s.State == goose.StateApplied}
	}
	return steps, nil
}

// Newest is the number of the newest migration there is.
func Newest() (int64, error) {
	entries, err := fs.ReadDir(migrations, "migrations")
	if err != nil {
		return 0, fmt.Errorf("read migrations: %w", err)
	}
	var newest int64
	for _, entry := range entries {
		version, err := goose.NumericComponent(entry.Name())
		if err != nil {
			return 0, fmt.Errorf("read migrations: %s: %w", entry.Name(), err)
		}
		newest = max(newest, version)
	}
	return newest, nil
}

// Fingerprint changes whenever a migration does. The test kit names its template
// database by it, so that a stale template is never cloned.
func Fingerprint() (string, error) {
	sum := sha256.New()
	err := fs.WalkDir(migrations, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := migrations.ReadFile(path)
		if err != nil {
			return err
		}
		fmt.Fprintf(sum, "%s %d\n%s", path, len(text), text)
		return nil
	})
	if err != nil {
		return "", fmt.Errorf("fingerprint migrations: %w", err)
	}
	return hex.EncodeToString(sum.Sum(nil))[:12], nil
}

func provider(db *sql.DB) (*goose.Provider, error) {
	files, err := fs.Sub(migrations, "migrations")
	if err != nil {
		return nil, fmt.Errorf("open migrations: %w", err)
	}
	p, err := goose.NewProvider(goose.DialectPostgres, db, files, goose.WithLocker(&migrationLock{}))
	if err != nil {
		return nil, fmt.Errorf("read migrations: %w", err)
	}
	return p, nil
}
