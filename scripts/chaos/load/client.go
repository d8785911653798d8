package load

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"
)

// answerPatience is how long an answer is waited for before the request is repeated.
const answerPatience = 5 * time.Second

// client makes requests to any of the apis.
type client struct {
	apis []string
	http *http.Client

	mu     sync.Mutex
	random *rand.Rand
	avoid  map[string]time.Time // apis that let a request wait in vain, and until when
}

// avoidance is how long an api gets no requests after it let one wait for answerPatience
// in vain, as a load balancer does it: else one that is frozen would soon hold all the
// senders. Then a single request tries it.
const avoidance = 3 * time.Second

func newClient(apis []string, seed uint64) *client {
	return &client{
		apis: apis, random: rand.New(rand.NewPCG(seed, 2)), avoid: make(map[string]time.Time),
		http: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: senders, IdleConnTimeout: 30 * time.Second}},
	}
}

// request is what the client sends.
type request struct {
	method, path string
	key          string // the tenant's
	idempotency  string
	contentType  string
	body         []byte
	patience     time.Duration // 0: answerPatience
}

// answer is what came back.
type answer struct {
	status   int
	body     []byte
	replayed bool
}

// do makes one request. An error means that nobody knows what came of it.
func (c *client) do(ctx context.Context, r request) (answer, error) {
	ctx, cancel := context.WithTimeout(ctx, max(r.patience, answerPatience))
	defer cancel()
	api := c.anyAPI()
	got, err := c.ask(ctx, api, r)
	c.judge(api, errors.Is(err, context.DeadlineExceeded))
	return got, err
}

func (c *client) ask(ctx context.Context, api string, r request) (answer, error) {
	out, err := http.NewRequestWithContext(ctx, r.method, api+r.path, bytes.NewReader(r.body))
	if err != nil {
		return answer{}, err
	}
	out.Header.Set("Authorization", "Bearer "+r.key)
	if r.contentType != "" {
		out.Header.Set("Content-Type", r.contentType)
	}
	// net/http repeats a request with this header by itself when a connection turns out
	// to be dead, which is what a tenant's client does too.
	if r.idempotency != "" {
		out.Header.Set("Idempotency-Key", r.idempotency)
	}
	in, err := c.http.Do(out)
	if err != nil {
		return answer{}, err
	}
	defer in.Body.Close()
	body, err := io.ReadAll(in.Body)
	if err != nil {
		return answer{}, fmt.Errorf("read answer: %w", err)
	}
	return answer{status: in.StatusCode, body: body, replayed: in.Header.Get("Idempotent-Replayed") == "true"}, nil
}

// anyAPI draws one that is not avoided; when all are, any.
func (c *client) anyAPI() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	for _, i := range c.random.Perm(len(c.apis)) {
		until, avoided := c.avoid[c.apis[i]]
		if avoided && now.Before(until) {
			continue
		}
		if avoided { // this request tries it, and the others wait for what comes of that
			c.avoid[c.apis[i]] = now.Add(answerPatience + avoidance)
		}
		return c.apis[i]
	}
	return c.apis[c.random.IntN(len(c.apis))]
}

// judge remembers whether the api let a request wait in vain.
func (c *client) judge(api string, inVain bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if inVain {
		c.avoid[api] = time.Now().Add(avoidance)
	} else {
		delete(c.avoid, api)
	}
}

func (c *client) close() { c.http.CloseIdleConnections() }

// repeatable says that the same request may be accepted later.
func repeatable(status int) bool {
	return status == http.StatusConflict || status == http.StatusTooManyRequests || status >= http.StatusInternalServerError
}

func read[T any](a answer) (T, error) {
	var out T
	if err := json.Unmarshal(a.body, &out); err != nil {
		return out, fmt.Errorf("read answer %.200q: %w", a.body, err)
	}
	return out, nil
}
