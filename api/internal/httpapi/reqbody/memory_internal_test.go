package reqbody

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/google/uuid"

	"email-gateway/api/internal/httpapi/problem"
	"email-gateway/api/internal/httpapi/reqctx"
	"email-gateway/api/internal/spool"
	"email-gateway/shared/store/tenant"
)

// receiver is a server that receives bodies for the company in X-Company.
type receiver struct {
	*Receiver
	url     string
	handled chan struct{} // a handler that has read its body waits for one
}

func newReceiver(t *testing.T, l Limits, p Pace, disk bool) *receiver {
	t.Helper()
	r := &receiver{Receiver: &Receiver{Memory: NewMemory(l), Pace: p, Most: 2 << 20, TooLarge: TooLarge}, handled: make(chan struct{})}
	if disk {
		var err error
		if r.Spool, err = spool.Open(t.TempDir()); err != nil {
			t.Fatal(err)
		}
	}
	gin.SetMode(gin.ReleaseMode)
	router := gin.New()
	answer := func(step func(*gin.Context) error) gin.HandlerFunc {
		return func(c *gin.Context) {
			if err := step(c); err != nil {
				c.AbortWithStatusJSON(problem.Of(err).Status, problem.Of(err).Code)
			}
		}
	}
	router.Use(func(c *gin.Context) {
		v := &reqctx.State{}
		if id, err := uuid.Parse(c.GetHeader("X-Company")); err == nil {
			v.Caller = &tenant.Caller{APIKey: tenant.APIKey{CompanyID: id}}
		}
		c.Set(reqctx.StateKey, v)
		c.Next()
		v.LeaveBody(c)
	})
	router.POST("/", answer(r.Limit), answer(func(c *gin.Context) error {
		text, err := Read(c)
		if err != nil {
			return err
		}
		if strings.HasPrefix(string(text), "wait") {
			<-r.handled
		}
		c.String(http.StatusOK, fmt.Sprint(len(text)))
		return nil
	}))
	server := httptest.NewServer(router)
	t.Cleanup(server.Close)
	r.url = server.URL
	return r
}

// post returns the text of the response.
func (r *receiver) post(ctx context.Context, company uuid.UUID, body io.Reader) string {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, r.url, body)
	if err != nil {
		return err.Error()
	}
	if pipe, ok := body.(*io.PipeReader); ok { // which the client waits for
		defer context.AfterFunc(ctx, func() { _ = pipe.CloseWithError(context.Canceled) })()
	}
	request.Header.Set("X-Company", company.String())
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err.Error()
	}
	defer response.Body.Close()
	text, _ := io.ReadAll(response.Body)
	return string(text)
}

// waitFor waits until the memory in use has the expected value.
func (r *receiver) waitFor(t *testing.T, what string, is func(all bodyUse, owners int) bool) {
	t.Helper()
	end := time.Now().Add(3 * time.Minute)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		r.Memory.mu.Lock()
		all, owners := r.Memory.all, len(r.Memory.owners)
		done := is(all, owners)
		r.Memory.mu.Unlock()
		if done {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%s: %+v, %d companies", what, all, owners)
		}
		<-tick.C
	}
}

func nothing(all bodyUse, owners int) bool { return all == bodyUse{} && owners == 0 }

// begun starts a body that sends n bytes and continues on demand.
func begun(size int) (body io.Reader, end func()) {
	read, write := io.Pipe()
	go func() { _, _ = io.WriteString(write, strings.Repeat("x", size)) }()
	return read, func() { _ = write.Close() }
}

// Memory is reserved as bytes arrive, within the limit of the company, and released completely,
// whatever happens to the body.
func TestBodyMemory(t *testing.T) {
	t.Parallel()
	limits := TenantLimits
	limits.ownArriving, limits.ownMemory = 256<<10, 4<<20
	r := newReceiver(t, limits, MinPace, true)
	company := uuid.New()
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	var senders sync.WaitGroup
	for range 40 {
		body, _ := begun(100)
		senders.Go(func() { r.post(ctx, company, body) })
	}
	r.waitFor(t, "bodies that have begun", func(all bodyUse, owners int) bool {
		return owners == 1 && all.memory == 0 && r.arriving(company) == 40
	})
	for range 8 {
		body, _ := begun(200 << 10)
		senders.Go(func() { r.post(ctx, company, body) })
	}
	r.waitFor(t, "bodies for which there is no memory", func(all bodyUse, _ int) bool {
		return all.arriving > 0 && all.arriving <= limits.ownArriving && all.disk > 700<<10
	})
	if got := r.post(t.Context(), company, strings.NewReader(strings.Repeat("x", 1<<20))); got != fmt.Sprint(1<<20) {
		t.Errorf("another body meanwhile: %q", got)
	}
	leave()
	senders.Wait()
	r.waitFor(t, "after the clients left", nothing)
	for _, size := range []int{0, 1, 2 << 20, 2<<20 + 1} {
		r.post(t.Context(), company, io.MultiReader(strings.NewReader(strings.Repeat("x", size))))
	}
	r.waitFor(t, "after bodies of many sizes", nothing)
}

func (r *receiver) arriving(company uuid.UUID) int {
	if owner := r.Memory.owners[company]; owner != nil {
		return len(owner.bodies)
	}
	return 0
}

// While a company's bodies are processed, its other bodies wait and are then rejected; bodies of other
// companies do not wait.
func TestBodyMemory_OfOneCompany(t *testing.T) {
	t.Parallel()
	limits := TenantLimits
	limits.wait, limits.ownBodies = 300*time.Millisecond, 4
	r := newReceiver(t, limits, MinPace, true)
	company, other := uuid.New(), uuid.New()
	large := "wait" + strings.Repeat("x", 2<<20-4)
	var senders sync.WaitGroup
	for range 4 {
		senders.Go(func() { r.post(t.Context(), company, strings.NewReader(large)) })
	}
	r.waitFor(t, "four bodies", func(all bodyUse, _ int) bool { return all.memory == 8<<20 })
	if got := r.post(t.Context(), company, strings.NewReader(large)); got != `"TOO_MANY_BODIES"` {
		t.Errorf("the fifth body: %q", got)
	}
	if got := r.post(t.Context(), other, strings.NewReader(large[4:])); got != fmt.Sprint(2<<20-4) {
		t.Errorf("a body of another company: %q", got)
	}
	close(r.handled)
	senders.Wait()
	r.waitFor(t, "at the end", nothing)

	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	for range 4 {
		body, _ := begun(1)
		senders.Go(func() { r.post(ctx, company, body) })
	}
	r.waitFor(t, "four that begin", func(bodyUse, int) bool { return r.arriving(company) == 4 })
	if got := r.post(t.Context(), company, strings.NewReader("x")); got != `"TOO_MANY_BODIES"` {
		t.Errorf("the fifth body when memory is free: %q", got)
	}
	leave()
	senders.Wait()
}

// Bodies without a key are cut off, slowest first, to make room for newer ones.
func TestBodyMemory_OfStrangers(t *testing.T) {
	t.Parallel()
	limits := AnonymousLimits
	limits.ownArriving, limits.allArriving, limits.ownBodies = 256<<10, 256<<10, 8
	r := newReceiver(t, limits, MinPace, false)
	answers := make(chan string, 64)
	for range 30 {
		body, _ := begun(100 << 10)
		go func() { answers <- r.post(t.Context(), uuid.Nil, body) }()
	}
	for range 28 { // two have been accepted
		if got := <-answers; got != `"BUSY"` && !strings.Contains(got, "broken pipe") && !strings.Contains(got, "reset by peer") {
			t.Errorf("a slow body: %q", got)
		}
	}
	for range 20 {
		if got := r.post(t.Context(), uuid.Nil, strings.NewReader(strings.Repeat("x", 200<<10))); got != fmt.Sprint(200<<10) {
			t.Errorf("a fast body: %q", got)
		}
	}
}

// A body below the minimum rate is aborted; one that keeps the rate is not.
func TestBodies_Pace(t *testing.T) {
	t.Parallel()
	r := newReceiver(t, TenantLimits, Pace{bytes: 400, each: time.Second}, true)
	for name, tt := range map[string]struct {
		piece, pieces int
		want          string
	}{
		"one byte at a time": {1, 60, `"BODY_TOO_SLOW"`},
		"fast enough":        {100, 40, "4000"},
	} {
		read, write := io.Pipe()
		go func() {
			tick := time.NewTicker(40 * time.Millisecond)
			defer tick.Stop()
			for range tt.pieces {
				<-tick.C
				if _, err := io.WriteString(write, strings.Repeat("x", tt.piece)); err != nil {
					return
				}
			}
			_ = write.Close()
		}()
		if got := r.post(t.Context(), uuid.New(), read); got != tt.want {
			t.Errorf("%s: %q", name, got)
		}
		_ = read.CloseWithError(errors.New("answered"))
	}
	body, _ := begun(50_000) // and nothing more
	if got := r.post(t.Context(), uuid.New(), body); got != `"BODY_TOO_SLOW"` {
		t.Errorf("a body that stops: %q", got)
	}
	r.waitFor(t, "at the end", nothing)
}
