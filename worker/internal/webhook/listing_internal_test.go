package webhook

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"

	webhookstore "email-gateway/shared/store/webhook"
)

// busyStore has a new event in each round, and so many endpoints that each listing takes a time.
type busyStore struct {
	Store
	head     int64
	listing  time.Duration // how long a listing takes
	listings int
	behind   []webhookstore.Work // what each listing returns
	taken    atomic.Int64
}

func (*busyStore) Count(context.Context) (webhookstore.Counts, error) {
	return webhookstore.Counts{Enabled: 1}, nil
}

func (*busyStore) CatchUp(context.Context) error { return nil }

func (*busyStore) Due(context.Context, time.Duration, int) ([]webhookstore.Work, error) {
	return nil, nil
}

func (s *busyStore) Head(context.Context) (int64, error) {
	s.head++
	return s.head, nil
}

func (s *busyStore) Behind(context.Context, time.Duration, int) ([]webhookstore.Work, error) {
	s.listings++
	<-time.After(s.listing)
	return slices.Clone(s.behind), nil
}

func (s *busyStore) Take(context.Context, webhookstore.Lease, time.Duration) error {
	s.taken.Add(1)
	return webhookstore.ErrLeaseLost
}

// Listings of all endpoints take a tenth of the time, and short ones run in each round.
func TestService_ListingsRest(t *testing.T) {
	t.Parallel()
	for listing, want := range map[time.Duration][2]int{time.Millisecond: {230, 240}, 100 * time.Millisecond: {45, 60}, 5 * time.Second: {4, 5}} {
		synctest.Test(t, func(t *testing.T) {
			store := &busyStore{listing: listing}
			s := New(Params{Store: store, Metrics: NewMetrics(prometheus.NewRegistry())})
			for end := time.Now().Add(time.Minute); time.Now().Before(end); <-time.After(tick) {
				if _, err := s.runOnce(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			if n := store.listings; n < want[0] || n > want[1] {
				t.Errorf("%d listings of %s in a minute, want %d to %d", n, listing, want[0], want[1])
			}
		})
	}
}

// A listing contains more endpoints than can be served at the same time. The others are served before the next listing.
func TestService_ListedEndpointsAreServed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &busyStore{listing: time.Second}
		for range 3 * maxActive {
			store.behind = append(store.behind, webhookstore.Work{EndpointID: uuid.New(), CompanyID: uuid.New()})
		}
		s := New(Params{Store: store, Metrics: NewMetrics(prometheus.NewRegistry())})
		for range 4 {
			if _, err := s.runOnce(t.Context()); err != nil {
				t.Fatal(err)
			}
			synctest.Wait() // all that were started have ended
		}
		if n := store.taken.Load(); store.listings != 1 || n != 3*maxActive {
			t.Errorf("%d of %d endpoints served after %d listings", n, 3*maxActive, store.listings)
		}
	})
}
