package blob

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
)

const (
	// writeTrust is how long an S3 server that has accepted a file counts as writable.
	writeTrust = time.Minute
	// writeCheckKey is the key of the upload that a check begins and aborts. It needs the permissions of a stored file.
	writeCheckKey = "files/write-check"
)

// writeCheck checks whether an S3 server accepts files.
type writeCheck struct {
	enabled bool // the program stores files

	mu       sync.Mutex
	accepted time.Time // when the last file was accepted; zero if a later one was not
}

// note notes the result of storing a file.
func (w *writeCheck) note(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.accepted = time.Now()
	if err != nil {
		w.accepted = time.Time{}
	}
}

func (w *writeCheck) isDue() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.enabled && time.Since(w.accepted) >= writeTrust
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
	_, aborting := s.client.AbortMultipartUpload(ctx, &s3.AbortMultipartUploadInput{Bucket: &s.name, Key: key, UploadId: upload.UploadId})
	if err != nil {
		err = fmt.Errorf("upload a part: %w", err)
	}
	if aborting != nil {
		aborting = fmt.Errorf("abort an upload: %w", aborting)
	}
	return errors.Join(err, aborting)
}

// kmsKey returns the key that a bucket's policy may require of each upload, or nil.
func (s *server) kmsKey() *string {
	if s.options.KMSEncryptionID == "" {
		return nil
	}
	return &s.options.KMSEncryptionID
}
