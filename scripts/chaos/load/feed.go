package load

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"time"

	"email-gateway/shared/service"
)

// Feed is a tenant's feed of events, as one reader got it.
type Feed struct {
	Tenant  int // the number of the key; len(Params.Keys) is the quiet tenant
	Events  []FeedEvent
	Pages   int
	Repeats int // requests that were repeated with the same cursor
	// Refused is a response that no injected fault may cause; the reader stopped at it.
	Refused string
}

// FeedEvent is one event.
type FeedEvent struct {
	ID       string
	OutboxID string // "" for an event of no email
	Seq      int
	Type     string
}

const (
	// feedWait is how long a request waits for the next event, feedTimeout its timeout.
	feedWait    = 3 * time.Second
	feedTimeout = feedWait + 5*time.Second
	// maxPage is the largest page.
	maxPage = 100
)

// keys are those of all tenants, the quiet one's last.
func (l *Load) keys() []string {
	return append(append([]string(nil), l.params.Keys...), l.params.QuietKey)
}

// Follower reads the feed of each tenant from its beginning.
type Follower struct {
	load *Load
	wait time.Duration // for the next event at the end of the feed; 0 = the reader stops there

	mu    sync.Mutex
	feeds []Feed
}

// NewFollower returns a Follower that waits for further events until its ctx ends.
func (l *Load) NewFollower() *Follower { return l.newFollower(feedWait) }

func (l *Load) newFollower(wait time.Duration) *Follower {
	f := &Follower{load: l, wait: wait, feeds: make([]Feed, len(l.keys()))}
	for i := range f.feeds {
		f.feeds[i].Tenant = i
	}
	return f
}

// ReadFeeds reads the feed of each tenant from its beginning to its present end.
func (l *Load) ReadFeeds(ctx context.Context) []Feed {
	f := l.newFollower(0)
	f.Run(ctx)
	return f.Feeds()
}

// Run reads the feeds concurrently.
func (f *Follower) Run(ctx context.Context) {
	var reading sync.WaitGroup
	for i, key := range f.load.keys() {
		random := rand.New(rand.NewPCG(f.load.params.Seed, uint64(1000+i)))
		reading.Go(func() { f.read(ctx, i, key, random) })
	}
	reading.Wait()
}

// read reads one feed, and repeats requests without a response.
func (f *Follower) read(ctx context.Context, n int, key string, random *rand.Rand) {
	cursor := ""
	for try := 0; ctx.Err() == nil; {
		page, err := f.load.readPage(ctx, key, cursor, 1+random.IntN(maxPage), f.wait)
		if err != nil && ctx.Err() != nil {
			return
		}
		f.add(n, page, err)
		switch {
		case err != nil:
			try++
			if backoff(ctx, try) != nil {
				return
			}
			continue
		case page.refused != "" || f.wait == 0 && !page.HasMore:
			return
		}
		try, cursor = 0, page.NextCursor
	}
}

// add records a page, or that its request is repeated.
func (f *Follower) add(n int, page feedPage, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	feed := &f.feeds[n]
	if err != nil {
		feed.Repeats++
		return
	}
	feed.Pages++
	feed.Refused = page.refused
	feed.Events = append(feed.Events, page.Events...)
}

// Feeds returns what was read so far.
func (f *Follower) Feeds() []Feed {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.feeds)
}

// Await waits until each feed has as many events as in others.
func (f *Follower) Await(ctx context.Context, others []Feed) {
	for {
		behind := false
		for i, feed := range f.Feeds() {
			behind = behind || feed.Refused == "" && len(feed.Events) < len(others[i].Events)
		}
		if !behind || service.Pause(ctx, 100*time.Millisecond) != nil {
			return
		}
	}
}

// feedPage is a page of the feed; refused is a response other than 200 that will not change.
type feedPage struct {
	Events     []FeedEvent
	NextCursor string
	HasMore    bool
	refused    string
}

func (l *Load) readPage(ctx context.Context, key, cursor string, limit int, wait time.Duration) (feedPage, error) {
	query := url.Values{"limit": {strconv.Itoa(limit)}}
	if cursor != "" {
		query.Set("after", cursor)
	}
	if wait > 0 {
		query.Set("wait", strconv.Itoa(int(wait.Seconds())))
	}
	got, err := l.client.do(ctx, request{method: http.MethodGet, path: "/v1/events?" + query.Encode(), key: key, timeout: feedTimeout})
	switch {
	case err != nil:
		return feedPage{}, err
	case got.retryable():
		return feedPage{}, fmt.Errorf("status %d", got.status)
	case got.status != http.StatusOK:
		return feedPage{refused: unexpectedResponse(got.status, got.body)}, nil
	}
	return read[feedPage](got)
}
