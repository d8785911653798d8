package outbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"email-gateway/shared/email"
	"email-gateway/shared/store/file"
	"email-gateway/shared/store/idempotency"
	"email-gateway/shared/store/internal/pg"
	"email-gateway/shared/store/lane"
)

// NewEmail is one email to accept: the row the api writes before it answers 202.
type NewEmail struct {
	ID             uuid.UUID // UUIDv7
	CompanyID      uuid.UUID
	RequestID      string
	Job            email.SendJob // the dispatcher sets Attempt and EnqueuedAt
	Sender         string        // From, with its display name
	HTML           string        // "" = none
	Text           string        // "" = none
	NoAutoText     bool          // send no text part if Text is empty; otherwise the worker generates one from HTML
	HTMLSHA256     []byte
	CheckerVersion int
	CPFCNPJ        []byte // encrypted; nil = none
	Priority       int
	Delivery       email.Delivery
	SendAt         time.Time     // zero = now
	TTL            time.Duration // from acceptance or SendAt, whichever is later
	CreatedAt      time.Time
	Idempotency    *idempotency.Key // nil = none
	Aggregate      *Aggregate       // what the email is about; nil = none
	Template       string           // name@version or name/locale@version of its template; "" = none
	Attachments    []file.Attachment

	payload []byte
}

// size is the approximate number of bytes that the email adds to a statement.
func (e NewEmail) size() int { return len(e.HTML) + len(e.Text) + len(e.payload) + len(e.CPFCNPJ) }

// Accepter writes new emails, many at a time.
type Accepter struct {
	store      *Store
	group      *pg.Group[NewEmail, accepted]
	locked     *pg.LockedKeys[uuid.UUID] // companies
	nearQuotas *nearQuotas
}

// accepted is the result for one email of a group. held means that the email was not written, because another
// transaction holds its idempotency key or that of another email of the group.
type accepted struct {
	inserted bool
	held     bool
}

// NewAccepter returns an Accepter on the store's connections.
func (s *Store) NewAccepter() *Accepter {
	return &Accepter{store: s, locked: pg.NewLockedKeys[uuid.UUID](), nearQuotas: newNearQuotas(s), group: pg.NewGroup(
		func(e NewEmail) string { return e.ID.String() },
		NewEmail.size,
		s.insertGroup,
	).FairBy(func(e NewEmail) uuid.UUID { return e.CompanyID })}
}

// Accept commits the email. After it returns nil, the email cannot be lost.
//
// If it returns one of these errors, nothing was written: *idempotency.UsedError with the stored response, if the
// idempotency key was used; *AggregateTakenError; *file.GoneError, if an attached file does not exist; *quota.Error, if
// the email would exceed a quota of the company (the caller then looks up the response of the idempotency key itself);
// lane.ErrNone, ErrAggregateBusy, idempotency.ErrInProgress, pg.ErrBusy and pg.ErrUnavailable. After
// pg.ErrUnknownOutcome the email may have been written: call Exists.
func (a *Accepter) Accept(ctx context.Context, e NewEmail) error {
	var err error
	if e.payload, err = json.Marshal(e.Job); err != nil {
		return fmt.Errorf("encode job: %w", err)
	}
	nearQuota, err := a.store.quotas.Near(ctx, e.CompanyID, e.Demand())
	if err != nil {
		return err
	}
	// If the key expires between the insert and the look-up, the next round inserts the email.
	for range 3 {
		inserted, err := a.insert(ctx, e, nearQuota)
		var taken *AggregateTakenError
		if errors.As(err, &taken) {
			return a.store.answeredBefore(ctx, e, taken)
		}
		if err != nil || inserted {
			return err
		}
		// The email may exist already: database/sql runs the insert again when the connection breaks before the answer.
		exists, err := a.store.Exists(ctx, e.ID)
		switch {
		case err != nil:
			return errors.Join(pg.ErrUnknownOutcome, err)
		case exists:
			return nil
		}
		if e.Idempotency == nil {
			return lane.ErrNone
		}
		used, err := a.store.keys.FindUsed(ctx, e.CompanyID, *e.Idempotency)
		switch {
		case err == nil:
			return &idempotency.UsedError{Answer: used}
		case !errors.Is(err, pg.ErrNotFound):
			return err
		}
	}
	return lane.ErrNone
}

// insert adds the email to a group. Three kinds of email are written alone, so that other emails do not wait for their
// locks: one with an aggregate, whose key a program's open transaction may hold; one with attachments, because a
// cleaner may hold a file; and one with an idempotency key, if another transaction held a key of its company a moment
// ago.
func (a *Accepter) insert(ctx context.Context, e NewEmail, nearQuota bool) (bool, error) {
	switch {
	case e.Aggregate != nil, len(e.Attachments) > 0:
		return a.store.insertInOwnTx(ctx, e, nearQuota)
	case nearQuota:
		return a.nearQuotas.insertNear(ctx, e)
	case e.Idempotency == nil || !a.locked.Contains(e.CompanyID):
		if done, err := a.group.Do(ctx, e); err != nil || !done.held {
			return done.inserted, err
		}
	}
	return a.insertAlone(ctx, e)
}

// insertAlone inserts an email with an idempotency key in its own statement, and waits for the key as long as
// pg.Bounded permits.
func (a *Accepter) insertAlone(ctx context.Context, e NewEmail) (bool, error) {
	inserted, err := pg.Bounded(ctx, a.store.db, e.key().Row(e.CompanyID), func(wait time.Duration) ([]bool, error) {
		inserted, err := a.store.insertEmails(ctx, []NewEmail{e}, wait)
		if pg.IsLockTimeout(err) {
			a.locked.Add(e.CompanyID)
		}
		return inserted, err
	})
	if err != nil {
		return false, idempotency.AsInProgress(err)
	}
	return inserted[0], nil
}

// insertGroup writes a group. If another transaction holds one of its keys, insertGroup writes only the emails without
// a key and marks the others as held; they are then written one by one, so that a company waits only for its own keys.
// If a whole table is locked, insertGroup waits for the lock, because it blocks every email.
func (s *Store) insertGroup(ctx context.Context, emails []NewEmail) ([]accepted, error) {
	wait := idempotency.InsertWait
	if !slices.ContainsFunc(emails, isKeyed) {
		wait = 0
	}
	inserted, err := s.insertEmails(ctx, emails, wait)
	switch {
	case pg.IsRowWait(err):
		return s.insertUnkeyed(ctx, emails)
	case pg.IsLockTimeout(err):
		inserted, err = s.insertEmails(ctx, emails, 0)
	}
	if err != nil {
		return nil, err
	}
	results := make([]accepted, len(emails))
	for i := range results {
		results[i].inserted = inserted[i]
	}
	return results, nil
}

func (s *Store) insertUnkeyed(ctx context.Context, emails []NewEmail) ([]accepted, error) {
	free := slices.DeleteFunc(slices.Clone(emails), isKeyed)
	var inserted []bool
	if len(free) > 0 {
		var err error
		if inserted, err = s.insertEmails(ctx, free, 0); err != nil {
			return nil, err
		}
	}
	results := make([]accepted, len(emails))
	for i, e := range emails {
		if results[i].held = isKeyed(e); !results[i].held {
			results[i].inserted, inserted = inserted[0], inserted[1:]
		}
	}
	return results, nil
}

func isKeyed(e NewEmail) bool { return e.Idempotency != nil }

// Close waits for the groups in flight.
func (a *Accepter) Close() {
	a.group.Wait()
	a.nearQuotas.waitNear()
}

// existsSQL reads one row by primary key and locks nothing.
const existsSQL = `SELECT EXISTS (SELECT FROM email_outbox WHERE id = $1) AS found, ` + pg.ConfirmedColumn + ` IS NOT NULL AS confirmed`

// Exists reports whether an email was committed, and confirmed by a synchronous standby where there is one. It is for
// callers whose Accept returned pg.ErrUnknownOutcome.
func (s *Store) Exists(ctx context.Context, id uuid.UUID) (bool, error) {
	found, err := s.db.ExistsConfirmed(ctx, existsSQL, id)
	if err != nil {
		return false, fmt.Errorf("look up email: %w", err)
	}
	return found, nil
}
