package httpapi

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
)

// received simulates a body of which n bytes arrived within the given time, in pieces per second.
func received(bytesPerSecond float64, waited time.Duration) *slowBody {
	b := &slowBody{control: http.NewResponseController(httptest.NewRecorder()), pace: minPace}
	b.receive(bytesPerSecond, waited)
	return b
}

func (b *slowBody) receive(bytesPerSecond float64, waited time.Duration) {
	for ; waited > 0; waited -= time.Second {
		took := min(waited, time.Second)
		b.recent.arrived(int64(bytesPerSecond*took.Seconds()), took, b.pace.each)
	}
}

// While uploads wait, too slow ones are aborted one by one, slowest first. Fast uploads and new ones
// continue.
func TestOpenUploads_CutSlowest(t *testing.T) {
	t.Parallel()
	synctest.Test(t, testCutSlowest)
}

func testCutSlowest(t *testing.T) {
	open := newOpenUploads()
	upload := func(bytesPerSecond float64, waited time.Duration) *slowBody {
		b := received(bytesPerSecond, waited)
		t.Cleanup(open.add(uuid.New(), b))
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

// The slower of two uploads of one company is aborted before the only upload of another company, whatever
// their rates.
func TestOpenUploads_CutTheSlowerOfTwo(t *testing.T) {
	t.Parallel()
	synctest.Test(t, testCutTheSlowerOfTwo)
}

func testCutTheSlowerOfTwo(t *testing.T) {
	open := newOpenUploads()
	upload := func(company uuid.UUID, bytesPerSecond float64, waited time.Duration) *slowBody {
		b := received(bytesPerSecond, waited)
		t.Cleanup(open.add(company, b))
		return b
	}
	honest := upload(uuid.New(), busyRate/10, time.Minute)
	var slower, faster []*slowBody
	for n := range 3 {
		company := uuid.New()
		slower = append(slower, upload(company, busyRate+float64(1000*n), time.Minute))
		faster = append(faster, upload(company, busyRate+50_000, time.Minute))
	}
	for n, want := range slower {
		if open.cutSlowest(); !want.wasCut() {
			t.Errorf("call %d did not end the slower of the slowest two", n)
		}
		<-time.After(uploadWaitLimit)
	}
	if honest.wasCut() {
		t.Error("an only upload ended although companies had two")
	}
	young := uuid.New()
	upload(young, busyRate, time.Minute)
	begun := upload(young, 0, uploadWaitLimit/2)
	if open.cutSlowest(); honest.wasCut() || begun.wasCut() {
		t.Errorf("beside two, one of which has just begun: the only one %v, the new one %v", honest.wasCut(), begun.wasCut())
	}
	begun.receive(busyRate/2, uploadWaitLimit)
	if open.cutSlowest(); !begun.wasCut() {
		t.Error("the slower of two goes on")
	}
	<-time.After(uploadWaitLimit)
	if open.cutSlowest(); !honest.wasCut() {
		t.Error("the slow one goes on where no company has two")
	}
	for _, b := range faster {
		if b.wasCut() {
			t.Error("the faster of two ended")
		}
	}
}

// The rate of an upload is measured over its last interval of the pace.
func TestSlowBody_ProgressForgets(t *testing.T) {
	t.Parallel()
	rate := func(b *slowBody) float64 {
		bytes, waited := b.progress(time.Now())
		if waited < minPace.each/2 {
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
	b.receive(2*busyRate, minPace.each)
	if got := rate(b); got < busyRate {
		t.Errorf("%.0f bytes/s after it became fast again", got)
	}
}
