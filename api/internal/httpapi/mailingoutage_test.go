package httpapi_test

import (
	"context"
	"fmt"
	"io"
	"iter"
	"mime/multipart"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/uuid"

	"email-gateway/api/internal/httpapi"
	"email-gateway/shared/store"
	"email-gateway/shared/store/idempotency"
	mailingstore "email-gateway/shared/store/mailing"
	"email-gateway/shared/store/storetest"
	"email-gateway/shared/waittest"
)

// slowForm is a form whose file the test writes on demand.
type slowForm struct {
	file  io.Writer
	end   func()
	abort func(error)
	reply chan reply
}

func startUpload(t *testing.T, g *gateway, filename string) *slowForm {
	t.Helper()
	body, pipe := io.Pipe()
	w := multipart.NewWriter(pipe)
	f := &slowForm{reply: make(chan reply, 1), abort: func(err error) { _ = pipe.CloseWithError(err) }}
	go func() {
		r, err := g.try(t, call{Method: http.MethodPost, Path: "/mailings", Reader: body, Header: map[string]string{"Content-Type": w.FormDataContentType()}})
		if err != nil {
			r.Body = err.Error()
		}
		f.reply <- r
	}()
	writePart(t, w, mailingForm()[0])
	writePart(t, w, mailingForm()[1])
	f.file = writePart(t, w, part{name: "file", filename: filename, value: people})
	f.end = func() {
		if err := w.Close(); err != nil {
			t.Error(err)
		}
		_ = pipe.Close()
	}
	return f
}

func TestMailing_SlowClientHoldsNoTransaction(t *testing.T) {
	t.Parallel()
	g := start(t, nil)
	f := startUpload(t, g, "devagar.csv")
	waittest.Until(t, "the file is on its way", func() bool { return len(g.Storage.files(t)) == 1 })
	for range 20 { // a slow client sends a few rows
		if _, err := io.WriteString(f.file, "x@example.com;Xis;;\r\n"); err != nil {
			t.Fatal(err)
		}
	}
	waittest.Until(t, "no transaction is open while the client sends", func() bool { // those of loops and autovacuum end soon
		return storetest.Ask[int](t, g.Database, `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid() AND xact_start IS NOT NULL`) == 0
	})
	if rows := g.mailingRows(t); rows > 0 {
		t.Fatalf("%d rows while the client sends", rows)
	}
	f.end()
	if r := <-f.reply; r.Status != http.StatusAccepted || r.json(t)["accepted"] != 3.0 || r.json(t)["duplicates"] != 20.0 {
		t.Errorf("%d %s", r.Status, r.Body)
	}
}

func TestMailing_ClientGone(t *testing.T) {
	t.Parallel()
	g := start(t, nil)
	f := startUpload(t, g, "metade.csv")
	waittest.Until(t, "the file is on its way", func() bool { return len(g.Storage.files(t)) == 1 })
	f.abort(io.ErrClosedPipe)
	<-f.reply
	waittest.Until(t, "the file is taken back", func() bool { return len(g.Storage.files(t)) == 0 })
	g.leavesNothing(t, "a client that left")
}

func TestMailing_WithoutStorage(t *testing.T) {
	t.Parallel()
	g := start(t, func(p *httpapi.Params) { p.Bucket = brokenBucket{p.Bucket} })
	for _, size := range []int{0, 100_000} { // a client that has sent all, and one that is still sending
		r := g.upload(t, given(file(people+strings.Repeat("x@example.com;X;;\r\n", size))), nil)
		if r.Status != http.StatusServiceUnavailable || r.problem(t).Code != "STORAGE_UNAVAILABLE" || r.Header.Get("Retry-After") == "" {
			t.Errorf("%d %s", r.Status, r.Body)
		}
	}
	g.leavesNothing(t, "no storage")
	g.accept(t, emailBody(nil)) // single emails need none
}

func TestMailing_WithoutPostgres(t *testing.T) {
	t.Parallel()
	g, w := startBehind(t)
	g.accept(t, emailBody(nil)) // the key is cached from here on
	w.Stop()
	w.CutAll()
	r := g.upload(t, mailingForm(), nil)
	if p := r.problem(t); r.Status != http.StatusServiceUnavailable || p.Code != "DATABASE_UNAVAILABLE" {
		t.Errorf("%d %s", r.Status, r.Body)
	}
	w.Restart()
	if files := g.Storage.files(t); len(files) > 0 {
		t.Errorf("files %q", files)
	}
	g.mail(t, mailingForm())
}

// ingester replaces IngestMailing.
type ingester struct {
	httpapi.Store
	ingest func(ctx context.Context, m mailingstore.NewMailing, lines iter.Seq2[mailingstore.Line, error]) (mailingstore.Counts, []byte, error)
}

func (i ingester) IngestMailing(ctx context.Context, m mailingstore.NewMailing, lines iter.Seq2[mailingstore.Line, error]) (mailingstore.Counts, []byte, error) {
	return i.ingest(ctx, m, lines)
}

// The response to the COMMIT is lost: if the mailing is stored, the answer is 202; if that is unknown, the file
// is kept.
func TestMailing_UnknownOutcome(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	var committed atomic.Bool
	g := startOn(t, d, func(p *httpapi.Params) {
		p.Store = ingester{p.Store, func(ctx context.Context, m mailingstore.NewMailing, lines iter.Seq2[mailingstore.Line, error]) (mailingstore.Counts, []byte, error) {
			if committed.Load() {
				counts, answer, err := d.Store.IngestMailing(ctx, m, lines)
				if err != nil {
					return counts, answer, err
				}
				return counts, answer, store.ErrUnknownOutcome
			}
			return mailingstore.Counts{}, nil, store.ErrUnknownOutcome
		}}
	})
	r := g.upload(t, mailingForm(), nil)
	p := r.problem(t)
	id := p.Detail[strings.LastIndexByte(p.Detail, ' ')+1:]
	if _, err := uuid.Parse(id); r.Status != http.StatusServiceUnavailable || p.Code != "ACCEPT_UNKNOWN" || err != nil {
		t.Errorf("%d %s", r.Status, r.Body)
	}
	if files := g.Storage.files(t); len(files) != 1 || files[0] != id+".csv" {
		t.Errorf("files %q", files)
	}
	committed.Store(true)
	if r := g.upload(t, mailingForm(), nil); r.Status != http.StatusAccepted || r.json(t)["accepted"] != 2.0 {
		t.Errorf("%d %s", r.Status, r.Body)
	}
}

// A concurrent request with the same key waits for the first and gets the same response.
func TestMailing_AtOnce(t *testing.T) {
	t.Parallel()
	g := start(t, nil)
	answers := make(chan reply, 12)
	var all sync.WaitGroup
	for n := range 12 {
		all.Go(func() {
			answers <- g.upload(t, given(part{name: "name", value: fmt.Sprint("lista ", n%3)}), nil)
		})
	}
	all.Wait()
	close(answers)
	bodies := map[string]int{}
	for r := range answers {
		if r.Status != http.StatusAccepted {
			t.Errorf("%d %s", r.Status, r.Body)
		}
		bodies[r.Body]++
	}
	if n, files := storetest.Ask[int](t, g.Database, `SELECT count(*) FROM mailings`), g.Storage.files(t); n != 3 || len(files) != 3 || len(bodies) != 3 {
		t.Errorf("%d mailings, %d files, answers %v", n, len(files), bodies)
	}
}

func TestMailing_ConcurrentUploadInProgress(t *testing.T) {
	t.Parallel()
	g := start(t, func(p *httpapi.Params) {
		p.Store = ingester{p.Store, func(context.Context, mailingstore.NewMailing, iter.Seq2[mailingstore.Line, error]) (mailingstore.Counts, []byte, error) {
			return mailingstore.Counts{}, nil, fmt.Errorf("ingest: %w", idempotency.ErrInProgress)
		}}
	})
	for code, header := range map[string]map[string]string{"MAILING_IN_PROGRESS": nil, "IDEMPOTENCY_IN_PROGRESS": {"Idempotency-Key": "k"}} {
		r := g.upload(t, mailingForm(), header)
		if r.Status != http.StatusConflict || r.problem(t).Code != code || r.Header.Get("Retry-After") == "" {
			t.Errorf("%d %s", r.Status, r.Body)
		}
	}
	g.leavesNothing(t, "a concurrent upload")
}
