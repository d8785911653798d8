// Package schema has the embedded migrations of the database, and applies them. The migrate command
// and the test kit of shared/store use it, and gatewayctl reads the newest version; the programs
// expect a migrated database.
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
	// busyTimeout is how long a migration is repeated after its first lock timeout. Running
	// programs hold locks for milliseconds; an upload of many rows, a report or a backup holds them for minutes to hours.
	busyTimeout  = time.Minute
	busyInterval = 5 * time.Second // statements that waited for the migration run meanwhile
)

// Up migrates the database to the newest version. Any number of callers may run it concurrently: a
// lock admits one, after which the others have nothing to do. Programs may run meanwhile: a
// migration with a lock timeout is run again, for up to a minute after the first timeout. Its
// effects were rolled back, or it skips what is done. It refuses a database whose encoding is not UTF8, or whose locale
// lowers ASCII letters to others.
func Up(ctx context.Context, db *sql.DB) error {
	if err := checkLocale(ctx, db); err != nil {
		return fmt.Errorf("migrate up: %w", err)
	}
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
		// A failed migration without a transaction leaves its lock_timeout on its session, and the
		// next one may be an index, which must wait without a timeout.
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

// localeSQL reads settings of the database and locks nothing.
const localeSQL = `SELECT current_setting('server_encoding'), lower('ABCDEFGHIJKLMNOPQRSTUVWXYZ') = 'abcdefghijklmnopqrstuvwxyz'`

// checkLocale returns an error unless the database stores UTF-8 and lowers ASCII letters to ASCII letters. In another
// encoding Postgres refuses characters that it lacks, or, with SQL_ASCII, counts, compares and cuts bytes instead of
// characters. In a Turkish or Azerbaijani locale lower('I') is a dotless i, so INFO@… would not match the suppression or
// the erasure of info@…. Neither property of a database can be changed.
func checkLocale(ctx context.Context, db *sql.DB) error {
	var encoding string
	var lowersASCII bool
	if err := db.QueryRowContext(ctx, localeSQL).Scan(&encoding, &lowersASCII); err != nil {
		return fmt.Errorf("read the encoding and locale of the database: %w", err)
	}
	if encoding != "UTF8" {
		return fmt.Errorf("the encoding of the database is %s, and must be UTF8: create another database with ENCODING 'UTF8' TEMPLATE template0", encoding)
	}
	if !lowersASCII {
		return errors.New("the locale of the database lowers ASCII letters to others, as Turkish does: create another database with LOCALE 'C.UTF-8' TEMPLATE template0")
	}
	return nil
}

// retry limits how long one migration is repeated.
type retry struct {
	version int64
	until   time.Time
}

// again reports whether the migration had a lock timeout less than busyTimeout after its first one.
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

// closeIdle closes the idle sessions.
func closeIdle(db *sql.DB) {
	const usual = 2 // database/sql's default
	db.SetMaxIdleConns(0)
	db.SetMaxIdleConns(usual)
}

// lostLock reports whether Postgres cancelled the statement because of another transaction's lock:
// by lock_timeout or because of a deadlock.
func lostLock(err error) bool {
	var refused interface{ SQLState() string }
	return errors.As(err, &refused) && (refused.SQLState() == lockNotAvailable || refused.SQLState() == deadlockDetected)
}

// Down reverts the newest migration, with the data of its tables.
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

// Newest returns the number of the newest migration.
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

// Fingerprint returns a hash of the migrations. The test kit uses it in the name of its template
// database, so that a stale template is never cloned.
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
