package httpapi

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"
)

// received is a body of which so many bytes arrived, in pieces of a second, in so much time.
func received(bytesPerSecond float64, waited time.Duration) *slowBody {
	b := &slowBody{control: http.NewResponseController(httptest.NewRecorder()), pace: leastPace}
	b.receive(bytesPerSecond, waited)
	return b
}

func (b *slowBody) receive(bytesPerSecond float64, waited time.Duration) {
	for ; waited > 0; waited -= time.Second {
		took := min(waited, time.Second)
		b.recent.arrived(int64(bytesPerSecond*took.Seconds()), took, b.pace.each)
	}
}

// While uploads wait, those that are too slow end one by one, the slowest first. One that is fast
// enough goes on, and so does one that has only begun.
func TestOpenUploads_CutSlowest(t *testing.T) {
	t.Parallel()
	synctest.Test(t, testCutSlowest)
}

func testCutSlowest(t *testing.T) {
	open := newOpenUploads()
	upload := func(bytesPerSecond float64, waited time.Duration) *slowBody {
		b := received(bytesPerSecond, waited)
		t.Cleanup(open.add(b))
		return b
	}
	fast, slow, slower := upload(busyRate+1000, time.Hour), upload(busyRate/2, time.Minute), upload(busyRate/100, time.Minute)
	begun := upload(0, uploadWaitLimit/2)
	silent := upload(0, 0)
	silent.recent.wait(time.Now().Add(-time.Minute)) // nothing has arrived
	for _, want := range []*slowBody{silent, slower, slow} {
		if want.wasCut() {
			t.Fatal("two ended at once")
		}
		if open.cutSlowest(); !want.wasCut() {
			t.Fatal("another one ended")
		}
		for range 10 { // calls of other uploads that wait
			<-time.After(uploadWaitLimit / 20)
			open.cutSlowest()
		}
		<-time.After(uploadWaitLimit / 2)
	}
	if open.cutSlowest(); fast.wasCut() || begun.wasCut() {
		t.Errorf("ended: the fast one %v, the new one %v", fast.wasCut(), begun.wasCut())
	}
}

// An upload that was fast and then is slow is judged by its last interval of the pace.
func TestSlowBody_ProgressForgets(t *testing.T) {
	t.Parallel()
	rate := func(b *slowBody) float64 {
		bytes, waited := b.progress(time.Now())
		if waited < leastPace.each/2 {
			t.Errorf("judged by %s", waited)
		}
		return float64(bytes) / waited.Seconds()
	}
	b := received(100<<20, 20*time.Second)
	if got := rate(b); got < busyRate {
		t.Errorf("%.0f bytes/s while it is fast", got)
	}
	b.receive(3000, 45*time.Second)
	if got := rate(b); got > 3001 {
		t.Errorf("%.0f bytes/s, want 3000", got)
	}
	b.receive(2*busyRate, leastPace.each)
	if got := rate(b); got < busyRate {
		t.Errorf("%.0f bytes/s after it became fast again", got)
	}
}
