package httpapi_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/uuid"

	"email-gateway/api/internal/httpapi"
	"email-gateway/shared/store/outbox"
	"email-gateway/shared/store/template"
	"email-gateway/shared/waittest"
)

// Emails made from templates may have 10 MiB of content together: small items must not fill the memory.
func TestBatch_ContentFromTemplates(t *testing.T) {
	t.Parallel()
	g := start(t, nil)
	r := g.do(t, call{Method: http.MethodPost, Path: "/v1/templates", Body: fmt.Sprintf(`{"name": "large", "subject": "s", "text": %q, "publish": true}`,
		strings.Repeat("word\n", 100_000))})
	if r.Status != http.StatusCreated {
		t.Fatalf("%d %.300s", r.Status, r.Body)
	}
	items := func(n int) string {
		all := make([]string, n)
		for i := range all {
			all[i] = fmt.Sprintf(`{"to": "p%d@example.com", "recipient": {"externalId": "c-%d"}, "template": {"name": "large"}}`, i, i)
		}
		return batchBody(all...)
	}
	for _, query := range []string{"", "?mode=partial"} {
		if r := g.batch(t, query, "", items(21)); r.Status != http.StatusRequestEntityTooLarge || r.problem(t).Code != "BODY_TOO_LARGE" {
			t.Errorf("21 emails of 500 KB%s: %d %.300s", query, r.Status, r.Body)
		}
	}
	if b := g.batch(t, "", "", items(20)).batch(t); b.Accepted != 20 {
		t.Errorf("20 emails of 500 KB: %+v", b)
	}
}

// A repeated batch gets its response although its template became too large since.
func TestBatch_TemplateGrowsBeforeTheRepetition(t *testing.T) {
	t.Parallel()
	g := start(t, nil)
	items := make([]string, 21)
	for i := range items {
		items[i] = fmt.Sprintf(`{"to": "p%d@example.com", "recipient": {"externalId": "c-%d"}, "template": {"name": "growing"}}`, i, i)
	}
	var answers []reply
	for _, size := range []int{1, 100_000} {
		r := g.do(t, call{Method: http.MethodPost, Path: "/v1/templates", Body: fmt.Sprintf(`{"name": "growing", "subject": "s", "text": %q, "publish": true}`,
			strings.Repeat("word\n", size))})
		if r.Status != http.StatusCreated {
			t.Fatalf("%d %.300s", r.Status, r.Body)
		}
		answers = append(answers, g.batch(t, "", "key-1", batchBody(items...)))
	}
	if answers[0].Status != http.StatusAccepted || answers[1].Body != answers[0].Body || answers[1].Header.Get("Idempotent-Replayed") != "true" {
		t.Errorf("%d, then %d %.300s", answers[0].Status, answers[1].Status, answers[1].Body)
	}
	if r := g.batch(t, "", "key-2", batchBody(items...)); r.Status != http.StatusRequestEntityTooLarge {
		t.Errorf("another key: %d %.300s", r.Status, r.Body)
	}
}

// resolveFunc is a template store that reports each email that is made from a template.
type resolveFunc struct {
	httpapi.TemplateStore
	resolve func(ctx context.Context, company uuid.UUID)
}

func (f resolveFunc) Resolve(ctx context.Context, company uuid.UUID, name string, locales []string) (template.ID, int, error) {
	f.resolve(ctx, company)
	return f.TemplateStore.Resolve(ctx, company, name, locales)
}

// acceptBatchFunc is a store whose commits of batches wait.
type acceptBatchFunc struct {
	httpapi.Store
	wait func(company uuid.UUID)
}

func (f acceptBatchFunc) AcceptBatch(ctx context.Context, b outbox.NewBatch) (outbox.BatchOutcome, error) {
	f.wait(b.CompanyID)
	return f.Store.AcceptBatch(ctx, b)
}

// Small batches that render large contents hold no more than the memory of their company until they are committed, and
// other companies are served meanwhile.
func TestBatch_RenderedMemoryPerCompany(t *testing.T) {
	t.Parallel()
	const size, limit = 500_000, 16 << 20
	var loud uuid.UUID
	var held, most, refused atomic.Int64
	released := make(chan struct{})
	release := sync.OnceFunc(func() { close(released) })
	g := start(t, func(p *httpapi.Params) {
		p.Store = acceptBatchFunc{p.Store, func(company uuid.UUID) {
			if company == loud {
				<-released
			}
		}}
		p.Templates = resolveFunc{p.Templates, func(ctx context.Context, company uuid.UUID) {
			if company != loud {
				return
			}
			for now, old := held.Add(size), most.Load(); now > old && !most.CompareAndSwap(old, now); old = most.Load() {
			}
			context.AfterFunc(ctx, func() { held.Add(-size) }) // once the request has ended
		}}
	})
	t.Cleanup(release) // otherwise the requests never end
	loud = g.Company
	quiet := g.newKey(t, g.Database.Company(t), nil).String()
	for _, key := range []string{"", quiet} {
		r := g.do(t, call{Method: http.MethodPost, Path: "/v1/templates", Key: key, Body: fmt.Sprintf(`{"name": "large", "subject": "s", "text": %q, "publish": true}`,
			strings.Repeat("word\n", size/5))})
		if r.Status != http.StatusCreated {
			t.Fatalf("%d %.300s", r.Status, r.Body)
		}
	}
	items := func(n int) string {
		all := make([]string, n)
		for i := range all { // each has its own locale, so that each version is resolved
			all[i] = fmt.Sprintf(`{"to": "ana@example.com", "recipient": {"externalId": "c-1"}, "template": {"name": "large", "locale": "a%c"}}`, 'a'+i)
		}
		return batchBody(all...)
	}
	var batches sync.WaitGroup
	for range 6 {
		batches.Go(func() {
			if r := g.batch(t, "", "", items(20)); r.Status == http.StatusTooManyRequests && r.problem(t).Code == "TOO_MANY_BODIES" {
				refused.Add(1)
			}
		})
	}
	waittest.Until(t, "there is a batch whose contents do not fit beside the first one's", func() bool { return most.Load() > 20*size })
	if r := g.do(t, call{Method: http.MethodPost, Path: "/v1/email/batch", Key: quiet, Body: items(20)}); r.Status != http.StatusAccepted {
		t.Errorf("another company: %d %.300s", r.Status, r.Body)
	}
	waittest.Until(t, "what does not fit is refused", func() bool { return refused.Load() > 0 || most.Load() > limit })
	if n := most.Load(); n > limit {
		t.Errorf("the rendered contents of one company use %d bytes", n)
	}
	release()
	batches.Wait()
	if b := g.batch(t, "", "", items(20)).batch(t); b.Accepted != 20 {
		t.Errorf("a batch after the memory was released: %+v", b)
	}
}
