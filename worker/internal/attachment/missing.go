package attachment

import (
	"context"
	"errors"
	"time"

	"github.com/google/uuid"

	"email-gateway/shared/store"
	"email-gateway/shared/store/file"
)

const (
	// missingTime is how long a file must be missing or damaged until its emails fail. The storage may be a copy that
	// lacks the newest files for a while after a failover, or a gateway may have ended a response early.
	missingTime = 5 * time.Minute
	// missingDelay is the delay of an email whose file is found to be missing for the first time.
	missingDelay = 10 * time.Second
)

// MissingError says that a file is gone or damaged.
type MissingError struct {
	reason string
	// Delay is when the email should be tried again; 0 = the file has been missing for long, and the email fails.
	Delay time.Duration
}

func (e *MissingError) Error() string { return e.reason }

// missing records that a file is missing, so that the api stores it again if its company sends it again, and returns a
// *MissingError. An email waits as long as its file has been missing: 50,000 emails with one file are not tried again
// and again.
func (l *Loader) missing(ctx context.Context, company uuid.UUID, a file.Attachment, reason string) error {
	age, known := a.MissingFor()
	if age > file.MarkedFor {
		age, known = 0, false
	}
	if !known {
		if err := l.store.MarkMissing(ctx, company, a.FileID); err != nil {
			return err
		}
	}
	err := &MissingError{reason: "the file " + a.FileID.String() + " " + reason}
	if age < missingTime {
		err.Delay = max(missingDelay, min(age, missingTime-age))
	}
	return err
}

// found records that a file was read that had been missing.
func (l *Loader) found(ctx context.Context, company uuid.UUID, a file.Attachment) error {
	if _, missing := a.MissingFor(); !missing {
		return nil
	}
	err := l.store.ClearMissing(ctx, company, a.FileID)
	if errors.Is(err, store.ErrNotFound) { // its last email was erased meanwhile
		return nil
	}
	return err
}
