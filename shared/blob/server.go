package blob

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsmiddleware "github.com/aws/aws-sdk-go-v2/aws/middleware"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/feature/s3/transfermanager"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/smithy-go"
	"github.com/aws/smithy-go/middleware"
	"gocloud.dev/blob"
	"gocloud.dev/blob/s3blob"
)

const (
	// A file up to partBytes is one request; a larger one is uploaded in parts of that size (the
	// minimum of S3), this many concurrently: enough to fill a connection to the next data centre.
	// One more part is read meanwhile.
	partBytes     = 5 << 20
	partsInFlight = 2
	// dialTimeout and attemptTimeout detect an unresponsive server: uploading a part of 5 MiB takes
	// that long at 90 kB/s. Reading a file has readTimeout.
	dialTimeout    = 5 * time.Second
	attemptTimeout = time.Minute
	// maxBackoff keeps the three attempts close together, because a client waits for the upload.
	maxBackoff = time.Second
	// abortTimeout is for aborting an upload whose context has ended.
	abortTimeout = 3 * time.Second

	serverPage = 1000 // the maximum of S3
	// serverTrust is how long a bucket that was found to be the installation's counts as that: a client's bucket is not
	// replaced by another one while a program runs, as a mounted disk may be.
	serverTrust = 10 * time.Second
)

// server is a bucket on an S3 server.
type server struct {
	name    string
	page    int // objects per list request
	opened  *blob.Bucket
	options s3blob.Options
	client  *s3.Client
	writes  writeCheck
	uploads *transfermanager.Client
}

// newServer makes a server. writes says whether the program marks the storage.
func newServer(ctx context.Context, at location, writes bool) (*server, error) {
	opener := &s3blob.URLOpener{}
	plain, err := opener.OpenBucketURL(ctx, at.url)
	if err != nil {
		return nil, err
	}
	s := &server{name: at.bucket, page: serverPage, options: opener.Options, writes: writeCheck{enabled: writes}}
	if !plain.As(&s.client) {
		return nil, errors.New("no S3 client behind the bucket")
	}
	// The same client with our timeouts.
	s.client = s3.New(s.client.Options(), setLimits)
	if s.client.Options().Region == "" {
		return nil, errors.New("no region: add ?region=… to the storage's URL or set AWS_REGION")
	}
	s.opened, err = s3blob.OpenBucket(ctx, s.client, at.bucket, &opener.Options)
	if err != nil {
		return nil, err
	}
	s.uploads = transfermanager.New(s.client, func(o *transfermanager.Options) {
		o.PartSizeBytes, o.MultipartUploadThreshold, o.Concurrency = partBytes, partBytes, partsInFlight
		o.FailTimeout = abortTimeout
		o.RequestChecksumCalculation = opener.Options.RequestChecksumCalculation
	})
	return s, nil
}

func setLimits(o *s3.Options) {
	o.DisableLogOutputChecksumValidationSkipped = true // files uploaded in parts have no checksum of the whole file
	if client, ok := o.HTTPClient.(*awshttp.BuildableClient); ok {
		o.HTTPClient = client.WithDialerOptions(func(d *net.Dialer) { d.Timeout = dialTimeout })
	}
	o.Retryer = retry.AddWithMaxBackoffDelay(o.Retryer, maxBackoff)
	o.APIOptions = append(o.APIOptions, func(stack *middleware.Stack) error {
		return stack.Finalize.Add(middleware.FinalizeMiddlewareFunc("LimitAttempt", limitAttempt), middleware.After)
	})
}

// limitAttempt runs inside the retries, so that each attempt has its own timeout.
func limitAttempt(
	ctx context.Context, in middleware.FinalizeInput, next middleware.FinalizeHandler,
) (middleware.FinalizeOutput, middleware.Metadata, error) {
	if awsmiddleware.GetOperationName(ctx) != "GetObject" { // its body is read after it has returned: see readLimit
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, attemptTimeout)
		defer cancel()
	}
	return next.HandleFinalize(ctx, in)
}

func (s *server) bucket() (*blob.Bucket, error) { return s.opened, nil }

func (s *server) put(ctx context.Context, key string, r io.Reader) (err error) {
	defer func() { s.writes.note(err) }()
	return s.opened.Upload(ctx, key, r, &blob.WriterOptions{
		ContentType: contentType,
		BeforeWrite: func(as func(any) bool) error {
			var uploads *transfermanager.Client
			if !as(&uploads) {
				return errors.New("no uploads behind the writer")
			}
			*uploads = *s.uploads
			return nil
		},
	})
}

func (s *server) list(ctx context.Context, prefix string, yield func(Object) bool) error {
	for page := blob.FirstPageToken; len(page) > 0; {
		objects, next, err := s.opened.ListPage(ctx, page, s.page, &blob.ListOptions{Prefix: prefix})
		if err != nil {
			return err
		}
		for _, o := range objects {
			if !isUnfinished(o.Key) && !yield(Object{Key: o.Key, Size: o.Size, ModTime: o.ModTime}) {
				return nil
			}
		}
		page = next
	}
	return nil
}

func (s *server) ping(ctx context.Context) error {
	if err := s.pingRead(ctx); err != nil {
		return err
	}
	return s.writes.result(ctx, s.checkWrite)
}

func (s *server) pingRead(ctx context.Context) error {
	_, err := s.client.HeadBucket(ctx, &s3.HeadBucketInput{Bucket: &s.name})
	return err
}

// dropUnfinished needs the permission s3:ListBucketMultipartUploads.
func (s *server) dropUnfinished(ctx context.Context, prefix string, before time.Time) (n int, err error) {
	pages := s3.NewListMultipartUploadsPaginator(s.client, &s3.ListMultipartUploadsInput{Bucket: &s.name, Prefix: &prefix})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return n, err
		}
		for _, upload := range page.Uploads {
			if !aws.ToTime(upload.Initiated).Before(before) {
				continue
			}
			_, err := s.client.AbortMultipartUpload(ctx, &s3.AbortMultipartUploadInput{
				Bucket: &s.name, Key: upload.Key, UploadId: upload.UploadId,
			})
			if err != nil {
				return n, fmt.Errorf("drop %s: %w", aws.ToString(upload.Key), err)
			}
			n++
		}
	}
	return n, nil
}

// missing: gocloud reports a missing bucket like a missing file.
func (s *server) missing(err error) bool {
	var refused smithy.APIError
	if errors.As(err, &refused) && refused.ErrorCode() != "NotFound" {
		return refused.ErrorCode() == "NoSuchKey"
	}
	var answer *awshttp.ResponseError
	return errors.As(err, &answer) && answer.HTTPStatusCode() == http.StatusNotFound
}

// denied reports whether an S3 server has denied a request. Without s3:ListBucket it denies reading an object that does not
// exist.
func denied(err error) bool {
	var answer *awshttp.ResponseError
	return errors.As(err, &answer) && answer.HTTPStatusCode() == http.StatusForbidden
}

func (s *server) close() error { return s.opened.Close() }
