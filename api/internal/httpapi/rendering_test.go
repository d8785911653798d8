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
	"email-gateway/shared/waittest"
)

// The rendered content of a small request counts toward the memory of its company. A company cannot exceed its memory, and
// other companies are served meanwhile.
func TestRendering_MemoryPerCompany(t *testing.T) {
	t.Parallel()
	var loud uuid.UUID
	var held, most, refused atomic.Int64
	release := make(chan struct{})
	g := start(t, func(p *httpapi.Params) {
		inner := p.Accepter
		p.Accepter = accepterFunc(func(ctx context.Context, e outbox.NewEmail) error {
			if size := int64(len(e.HTML) + len(e.Text)); e.CompanyID == loud {
				defer held.Add(-size)
				for now, old := held.Add(size), most.Load(); now > old && !most.CompareAndSwap(old, now); old = most.Load() {
				}
				<-release
			}
			return inner.Accept(ctx, e)
		})
	})
	loud = g.Company
	quiet := g.newKey(t, g.Database.Company(t), nil).String()
	body := strings.Repeat("word\n", 100_000) // plain text, which needs no HTML check
	for _, key := range []string{"", quiet} {
		r := g.do(t, call{Method: http.MethodPost, Path: "/v1/templates", Key: key, Body: fmt.Sprintf(`{"name": "large", "subject": "s", "text": %q, "publish": true}`, body)})
		if r.Status != http.StatusCreated {
			t.Fatalf("%d %.300s", r.Status, r.Body)
		}
	}
	send := call{Method: http.MethodPost, Path: "/v1/email/send", Body: `{"to": "ana@example.com", "recipient": {"externalId": "c-1"}, "template": {"name": "large"}}`}
	var sends sync.WaitGroup
	for range 40 {
		sends.Go(func() {
			if r := g.do(t, send); r.Status == http.StatusTooManyRequests && r.problem(t).Code == "TOO_MANY_BODIES" {
				refused.Add(1)
			}
		})
	}
	waittest.Until(t, "what does not fit is refused", func() bool { return refused.Load() > 0 || most.Load() > 12<<20 })
	if n := most.Load(); n > 8<<20 {
		t.Errorf("the rendered contents of one company use %d bytes", n)
	}
	other := send
	other.Key = quiet
	if r := g.do(t, other); r.Status != http.StatusAccepted {
		t.Errorf("another company: %d %.300s", r.Status, r.Body)
	}
	close(release)
	sends.Wait()
	if r := g.do(t, send); r.Status != http.StatusAccepted {
		t.Errorf("a request after the memory was released: %d %.300s", r.Status, r.Body)
	}
}
