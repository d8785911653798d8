package webhook

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	webhookstore "email-gateway/shared/store/webhook"
)

// The wait of an endpoint doubles from 1 s to 1 min. It begins anew when the endpoint was served, by this process or
// long after by another one.
func TestFailures(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f, one, other := newFailures(), webhookstore.Work{EndpointID: uuid.New()}, webhookstore.Work{EndpointID: uuid.New()}
		listed := func() []webhookstore.Work { return f.without([]webhookstore.Work{one, other}) }
		for _, want := range []time.Duration{1, 2, 4, 8, 16, 32, 60, 60} {
			if got := f.add(one.EndpointID); got != want*time.Second {
				t.Errorf("wait %v, want %ds", got, want)
			}
			if diff := cmp.Diff([]webhookstore.Work{other}, listed()); diff != "" || f.count() != 1 {
				t.Error("while it waits:", diff)
			}
			<-time.After(want * time.Second)
			if diff := cmp.Diff([]webhookstore.Work{one, other}, listed()); diff != "" {
				t.Error("after its wait:", diff)
			}
		}
		f.remove(one.EndpointID)
		if got := f.add(one.EndpointID); got != time.Second {
			t.Errorf("after it was served: %v", got)
		}
		<-time.After(2 * time.Minute)
		listed()
		if got := f.add(one.EndpointID); got != time.Second || f.count() != 1 {
			t.Errorf("two minutes later: %v", got)
		}
	})
}
