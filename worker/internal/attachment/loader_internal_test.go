package attachment

import (
	"context"
	"errors"
	"io"
	"testing"

	"github.com/google/uuid"

	"email-gateway/shared/blob"
	"email-gateway/shared/store/file"
)

// oneFile is a Store in which each email has one attachment.
type oneFile struct{}

func (oneFile) Attachments(context.Context, uuid.UUID, uuid.UUID) ([]file.Attachment, error) {
	return []file.Attachment{{Size: 1 << 20}}, nil
}

// broken is a Bucket whose every call fails.
type broken struct{ err error }

func (b *broken) Get(context.Context, string) (io.ReadCloser, error) { return nil, b.err }

// Emails that find the storage unavailable keep no part of the budget: after the outage the next one has its turn.
func TestLoad_OutageKeepsNoBudget(t *testing.T) {
	t.Parallel()
	bucket := &broken{err: blob.ErrUnavailable}
	l := New(Params{Store: oneFile{}, Bucket: bucket, Concurrency: func() int { return 8 }})
	load := func() error {
		_, _, err := l.Load(t.Context(), uuid.New(), uuid.New(), 1)
		return err
	}
	for range 50 { // the first one reads, the others find that it failed
		if err := load(); !errors.Is(err, ErrUnavailable) {
			t.Fatalf("during the outage: %v", err)
		}
	}
	l.failed = l.failed.Add(-restTime)
	bucket.err = blob.ErrNotFound
	var missing *MissingError
	if err := load(); !errors.As(err, &missing) {
		t.Errorf("after the outage: %v", err)
	}
	if l.budget.used != 0 || l.budget.count != 0 || len(l.budget.own) != 0 {
		t.Errorf("%d bytes of %d emails are still held", l.budget.used, l.budget.count)
	}
	for company, p := range l.pacing.companies {
		if p.running != 0 {
			t.Errorf("company %s has %d emails in flight", company, p.running)
		}
	}
}
