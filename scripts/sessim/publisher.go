package sessim

import (
	"bytes"
	"container/heap"
	"context"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"email-gateway/scripts/sessim/sesmail"
)

const (
	// publishers is the number of concurrent deliveries.
	publishers = 16
	// maxPending limits the notifications that wait for an unavailable endpoint.
	maxPending = 200_000
	// deliveryTime is SNS's timeout of a delivery.
	deliveryTime = 15 * time.Second
	// giveUpAfter is SNS's total retry time for one notification.
	giveUpAfter = time.Hour
	// usualRetryPause is SNS's default pause between two deliveries to an HTTP endpoint.
	usualRetryPause = 20 * time.Second
	// askAgain is the pause between two requests to confirm the subscription.
	askAgain = time.Second
)

// retryDelay returns the pause after attempt n, from 1 on: it grows up to longest.
func retryDelay(n int, longest time.Duration) time.Duration {
	delays := [...]time.Duration{100, 200, 500, 1000, 2000, 5000, 10_000, 20_000}
	return min(delays[min(n, len(delays))-1]*time.Millisecond, longest)
}

// notification is one event of one mail to be delivered to the endpoint.
type notification struct {
	mail   *sesmail.Mail // without its bodies
	kind   string
	about  []string
	copies int // still to be delivered
	then   *notification
	done   chan struct{} // closed after the last one of its mail

	at, startedAt time.Time
	tries         int
	id            string // SNS's, set with body
	body          []byte // set when it is signed
	delivered     bool
}

// EventCounts are the counts of publishing.
type EventCounts struct {
	Confirmed bool  `json:"confirmed"` // the endpoint confirmed the subscription
	Pending   int   `json:"pending"`   // mails with undelivered events
	Delivered int64 `json:"delivered"` // copies counted
	Retried   int64 `json:"retried"`
	Refused   int64 `json:"refused"` // 4xx, or given up
	Dropped   int64 `json:"dropped"` // mails whose events exceeded maxPending
}

// Delivered is an event that the endpoint answered with 2xx.
type Delivered struct {
	OutboxID  string
	Kind      string // in SES's words
	MessageID string // SNS's
}

// publisher delivers notifications to one endpoint, in their order for each mail.
type publisher struct {
	topic  *topic
	client *http.Client
	clock  func() time.Time
	wake   chan struct{}
	work   chan *notification

	mu      sync.Mutex
	pending dueHeap
	working int // removed from pending, but not delivered yet
	counts  EventCounts
	known   queue[Delivered]   // the last ones, each once
	limit   int                // of known
	cancel  context.CancelFunc // nil until it was started
}

func newPublisher(t *topic, clock func() time.Time, limit int) *publisher {
	return &publisher{
		topic: t, limit: limit, clock: clock, wake: make(chan struct{}, 1), work: make(chan *notification),
		client: &http.Client{Timeout: deliveryTime, Transport: &http.Transport{MaxIdleConnsPerHost: publishers, IdleConnTimeout: 20 * time.Second}},
	}
}

// start starts delivery.
func (p *publisher) start() {
	ctx, cancel := context.WithCancel(context.Background())
	p.mu.Lock()
	p.cancel = cancel
	p.mu.Unlock()
	go p.subscribe(ctx)
	go p.schedule(ctx)
	for range publishers {
		go p.publish(ctx)
	}
}

// stop stops delivery, and drops undelivered notifications.
func (p *publisher) stop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cancel != nil {
		p.cancel()
	}
}

// add adds the first notification of a mail, to which the others are linked.
func (p *publisher) add(n *notification) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.pending) >= maxPending {
		p.counts.Dropped++
		close(n.done)
		return
	}
	heap.Push(&p.pending, n)
	p.poke()
}

func (p *publisher) poke() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

func (p *publisher) snapshot() EventCounts {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := p.counts
	c.Pending = len(p.pending) + p.working
	return c
}

// confirm is called when the endpoint requests the SubscribeURL.
func (p *publisher) confirm() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.counts.Confirmed = true
	p.poke()
}

// subscribe requests the confirmation until the endpoint has confirmed.
func (p *publisher) subscribe(ctx context.Context) {
	ticker := time.NewTicker(askAgain)
	defer ticker.Stop()
	for !p.snapshot().Confirmed {
		if body, err := p.topic.confirmation(p.clock()); err == nil {
			_, _ = p.post(ctx, "SubscriptionConfirmation", body) // repeated on failure
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// schedule starts due deliveries.
func (p *publisher) schedule(ctx context.Context) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		n, wait := p.next()
		if n != nil {
			select {
			case p.work <- n:
				continue
			case <-ctx.Done():
				return
			}
		}
		timer.Reset(wait)
		select {
		case <-p.wake:
		case <-timer.C:
		case <-ctx.Done():
			return
		}
	}
}

func (p *publisher) next() (*notification, time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.counts.Confirmed || len(p.pending) == 0 {
		return nil, time.Hour
	}
	if wait := time.Until(p.pending[0].at); wait > 0 {
		return nil, wait
	}
	n, _ := heap.Pop(&p.pending).(*notification)
	p.working++
	return n, 0
}

func (p *publisher) publish(ctx context.Context) {
	for {
		select {
		case n := <-p.work:
			p.deliver(ctx, n)
		case <-ctx.Done():
			return
		}
	}
}

// deliver makes one attempt, and queues the next step: a retry, another copy, or the mail's next
// event.
func (p *publisher) deliver(ctx context.Context, n *notification) {
	if n.tries == 0 {
		n.startedAt = time.Now()
	}
	n.tries++
	status, err := 0, n.prepare(p.topic, p.clock())
	if err == nil {
		status, err = p.post(ctx, "Notification", n.body)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.working--
	final := status >= 400 && status < 500 && status != http.StatusTooManyRequests
	switch {
	case err == nil && status/100 == 2:
		p.counts.Delivered++
		n.copies--
		p.remember(n)
	case !final && time.Since(n.startedAt) < giveUpAfter && n.body != nil:
		p.counts.Retried++
		n.at = time.Now().Add(retryDelay(n.tries, time.Duration(p.topic.RetryPauseMS)*time.Millisecond))
		heap.Push(&p.pending, n)
		p.poke()
		return
	default:
		p.counts.Refused++
		n.copies = 0
	}
	switch {
	case n.copies > 0:
		n.at = time.Now()
		heap.Push(&p.pending, n)
	case n.then != nil:
		n.then.at = time.Now()
		heap.Push(&p.pending, n.then)
	default:
		close(n.done)
	}
	p.poke()
}

// remember records the first delivery of a notification; p.mu is held.
func (p *publisher) remember(n *notification) {
	if n.delivered {
		return
	}
	n.delivered = true
	if p.known.len() == p.limit {
		p.known.pop()
	}
	kind, _, _ := strings.Cut(n.kind, ":")
	p.known.push(Delivered{n.mail.OutboxID, kind, n.id})
}

// prepare signs the notification once for all its attempts and copies.
func (n *notification) prepare(t *topic, now time.Time) error {
	if n.body != nil {
		return nil
	}
	text, err := sesmail.Event(n.mail, n.kind, n.about, now)
	if err != nil {
		return err
	}
	n.id = sesmail.NewRequestID()
	n.body, err = t.envelope("Notification", text, now, map[string]string{"MessageId": n.id, "Subject": "Amazon SES Email Event Notification"})
	return err
}

// post sends a message as SNS does.
func (p *publisher) post(ctx context.Context, kind string, body []byte) (status int, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, p.topic.URL, bytes.NewReader(body))
	if err != nil {
		return 0, err
	}
	request.Header.Set("Content-Type", "text/plain; charset=UTF-8")
	request.Header.Set("User-Agent", "Amazon Simple Notification Service Agent")
	request.Header.Set("X-Amz-Sns-Message-Type", kind)
	request.Header.Set("X-Amz-Sns-Topic-Arn", p.topic.TopicARN)
	response, err := p.client.Do(request)
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(response.Body, 64<<10)) // so that the connection can be reused
	return response.StatusCode, nil
}

// dueHeap is a heap by due time.
type dueHeap []*notification

func (h dueHeap) Len() int           { return len(h) }
func (h dueHeap) Less(i, j int) bool { return h[i].at.Before(h[j].at) }
func (h dueHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *dueHeap) Push(n any)        { *h = append(*h, n.(*notification)) } //nolint:forcetypeassert // heap.Interface knows no types

// Pop removes the last element.
func (h *dueHeap) Pop() any {
	last := len(*h) - 1
	n := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	return n
}
