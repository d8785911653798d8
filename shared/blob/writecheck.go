package blob

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"golang.org/x/sync/singleflight"
)

const (
	// writeTrust is how long an S3 server that has accepted a file counts as writable.
	writeTrust = time.Minute
	// writeWait is how long a Ping waits for the check: a server may take longer for its three requests than /health waits.
	writeWait = 500 * time.Millisecond
	// writeCheckKey is the key of the upload that a check begins and aborts. It needs the permissions of a stored file.
	writeCheckKey = "files/write-check"
)

// writeCheck checks whether an S3 server accepts files.
type writeCheck struct {
	enabled bool // the program marks the storage
	running singleflight.Group

	mu       sync.Mutex
	accepted time.Time // when the last file was accepted; zero if a later one was not
	checked  bool      // a check or an upload has ended
	last     error     // the result of the last check; nil after a file was accepted
}

// note notes the result of storing a file.
func (w *writeCheck) note(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err != nil {
		w.accepted = time.Time{} // the next Ping checks why
		return
	}
	w.accepted, w.checked, w.last = time.Now(), true, nil
}

// noteCheck notes the result of a check.
func (w *writeCheck) noteCheck(err error) {
	w.note(err)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.checked, w.last = true, err
}

// result returns the result of check, which runs if it is due. If it takes longer than writeWait, it continues in the background,
// and the previous result counts.
func (w *writeCheck) result(ctx context.Context, check func(context.Context) error) error {
	w.mu.Lock()
	due, first, last := w.enabled && time.Since(w.accepted) >= writeTrust, !w.checked, w.last
	w.mu.Unlock()
	if !due {
		return nil
	}
	result := w.running.DoChan("", func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), checkTime)
		defer cancel()
		err := check(ctx)
		w.noteCheck(err)
		return nil, err
	})
	var late <-chan time.Time
	if !first {
		late = time.After(writeWait)
	}
	select {
	case r := <-result:
		return r.Err
	case <-late:
		return last
	case <-ctx.Done():
		return ctx.Err()
	}
}

// checkWrite begins an upload, sends a part and aborts it: a completed one would add a version of its object each time where the
// bucket keeps versions.
func (s *server) checkWrite(ctx context.Context) error {
	key := aws.String(writeCheckKey)
	upload, err := s.client.CreateMultipartUpload(ctx, &s3.CreateMultipartUploadInput{
		Bucket: &s.name, Key: key, ContentType: aws.String(contentType),
		ServerSideEncryption: s.options.EncryptionType, SSEKMSKeyId: s.kmsKey(),
	})
	if err != nil {
		return fmt.Errorf("begin an upload: %w", err)
	}
	_, err = s.client.UploadPart(ctx, &s3.UploadPartInput{
		Bucket: &s.name, Key: key, UploadId: upload.UploadId, PartNumber: aws.Int32(1), Body: bytes.NewReader(make([]byte, pingBytes)),
	})
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), abortTimeout)
	defer cancel()
	// If it fails, DropUnfinished drops the upload later.
	_, _ = s.client.AbortMultipartUpload(ctx, &s3.AbortMultipartUploadInput{Bucket: &s.name, Key: key, UploadId: upload.UploadId})
	if err != nil {
		return fmt.Errorf("upload a part: %w", err)
	}
	return nil
}

// kmsKey returns the key that a bucket's policy may require of each upload, or nil.
func (s *server) kmsKey() *string {
	if s.options.KMSEncryptionID == "" {
		return nil
	}
	return &s.options.KMSEncryptionID
}
