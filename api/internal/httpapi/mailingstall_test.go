package httpapi_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"email-gateway/api/internal/httpapi"
	"email-gateway/shared/blob"
	"email-gateway/shared/blob/blobtest"
	"email-gateway/shared/store"
	"email-gateway/shared/store/storetest"
)

// freezingBucket freezes the storage's server once some bytes of a file have been read.
type freezingBucket struct {
	httpapi.Bucket
	freeze func()
}

func (b freezingBucket) Get(ctx context.Context, key string) (io.ReadCloser, error) {
	r, err := b.Bucket.Get(ctx, key)
	return &freezingReader{ReadCloser: r, left: 1 << 20, freeze: b.freeze}, err
}

type freezingReader struct {
	io.ReadCloser
	left   int
	freeze func()
}

func (r *freezingReader) Read(p []byte) (int, error) {
	if r.left <= 0 {
		r.freeze()
	}
	n, err := r.ReadCloser.Read(p)
	r.left -= n
	return n, err
}

// The storage's server hangs while a mailing's lines are copied from its file to Postgres. The upload ends long before
// the 15 minutes that an ingest may take, and uploads are accepted again when the server is back.
func TestMailing_StorageStalls(t *testing.T) {
	t.Parallel()
	server := blobtest.Start(t)
	bucket, err := blob.Open(t.Context(), server.URL, blob.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = bucket.Close() })
	d := storetest.New(t)
	limited, err := store.Open(t.Context(), d.URL, store.Options{StatementTimeout: 10 * time.Second}) // as in the api's main
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(limited.Close)
	t.Cleanup(server.Thaw)
	freeze := sync.OnceFunc(server.Freeze)
	g := startOn(t, d, func(p *httpapi.Params) { p.Store, p.Bucket = limited, freezingBucket{bucket, freeze} })
	// More than the socket buffers between server and client hold.
	rows := "email;nome;nota\n" + strings.Repeat("ana@example.com;Ana;"+strings.Repeat("x", 50_000)+"\n", 600)
	start := time.Now()
	r := g.upload(t, given(part{name: "html", value: "<p>{{nome}}</p>"}, file(rows)), nil)
	if r.Status != http.StatusServiceUnavailable || r.problem(t).Code != "STORAGE_UNAVAILABLE" {
		t.Errorf("%d %s", r.Status, r.Body)
	}
	if took := time.Since(start); took > 5*time.Minute {
		t.Errorf("the upload held its slot for %s", took)
	}
	if n := g.mailingRows(t); n > 0 {
		t.Errorf("%d rows are left", n)
	}
	server.Thaw()
	g.mail(t, mailingForm())
}
