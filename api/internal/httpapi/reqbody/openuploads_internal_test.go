package reqbody

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"email-gateway/api/internal/httpapi/transfer"
)

// received simulates a body of which n bytes arrived within the given time, in pieces per second.
func received(bytesPerSecond float64, waited time.Duration) *SlowBody {
	b := &SlowBody{control: http.NewResponseController(httptest.NewRecorder()), pace: MinPace}
	b.receive(bytesPerSecond, waited)
	return b
}

func (b *SlowBody) receive(bytesPerSecond float64, waited time.Duration) {
	for ; waited > 0; waited -= time.Second {
		took := min(waited, time.Second)
		b.recent.Moved(int64(bytesPerSecond*took.Seconds()), took, b.pace.each)
	}
}

// While uploads wait, too slow ones are aborted one by one, slowest first. Fast uploads and new ones
// continue.
func TestOpenUploads_AbortSlowest(t *testing.T) {
	t.Parallel()
	synctest.Test(t, testCutSlowest)
}

func testCutSlowest(t *testing.T) {
	open := NewOpenUploads()
	upload := func(bytesPerSecond float64, waited time.Duration) *SlowBody {
		b := received(bytesPerSecond, waited)
		t.Cleanup(open.Add(uuid.New(), b))
		return b
	}
	fast, slow, slower := upload(BusyRate+1000, time.Hour), upload(BusyRate/2, time.Minute), upload(BusyRate/100, time.Minute)
	begun := upload(0, transfer.WaitLimit/2)
	silent := upload(0, 0)
	silent.recent.Wait(time.Now().Add(-time.Minute)) // nothing has arrived
	for _, want := range []*SlowBody{silent, slower, slow} {
		if want.Aborted() {
			t.Fatal("one call aborted two uploads")
		}
		if open.AbortSlowest(); !want.Aborted() {
			t.Fatal("another upload was aborted")
		}
		for range 10 { // calls of other uploads that wait
			<-time.After(transfer.WaitLimit / 20)
			open.AbortSlowest()
		}
		<-time.After(transfer.WaitLimit / 2)
	}
	if open.AbortSlowest(); fast.Aborted() || begun.Aborted() {
		t.Errorf("aborted: the fast upload %v, the new one %v; want neither", fast.Aborted(), begun.Aborted())
	}
}

// The slower of two uploads of one company is aborted before the only upload of another company, whatever
// their rates.
func TestOpenUploads_AbortsTheSlowerOfTwo(t *testing.T) {
	t.Parallel()
	synctest.Test(t, testCutTheSlowerOfTwo)
}

func testCutTheSlowerOfTwo(t *testing.T) {
	open := NewOpenUploads()
	upload := func(company uuid.UUID, bytesPerSecond float64, waited time.Duration) *SlowBody {
		b := received(bytesPerSecond, waited)
		t.Cleanup(open.Add(company, b))
		return b
	}
	honest := upload(uuid.New(), BusyRate/10, time.Minute)
	var slower, faster []*SlowBody
	for n := range 3 {
		company := uuid.New()
		slower = append(slower, upload(company, BusyRate+float64(1000*n), time.Minute))
		faster = append(faster, upload(company, BusyRate+50_000, time.Minute))
	}
	for n, want := range slower {
		if open.AbortSlowest(); !want.Aborted() {
			t.Errorf("call %d did not abort the slower of the slowest two", n)
		}
		<-time.After(transfer.WaitLimit)
	}
	if honest.Aborted() {
		t.Error("the only upload of a company was aborted although other companies had two")
	}
	young := uuid.New()
	upload(young, BusyRate, time.Minute)
	begun := upload(young, 0, transfer.WaitLimit/2)
	if open.AbortSlowest(); honest.Aborted() || begun.Aborted() {
		t.Errorf("with two uploads of a company, one of which has just begun: aborted the only upload %v, the new one %v; want neither", honest.Aborted(), begun.Aborted())
	}
	begun.receive(BusyRate/2, transfer.WaitLimit)
	if open.AbortSlowest(); !begun.Aborted() {
		t.Error("the slower of two uploads was not aborted")
	}
	<-time.After(transfer.WaitLimit)
	if open.AbortSlowest(); !honest.Aborted() {
		t.Error("the slow upload was not aborted although no company has two")
	}
	for _, b := range faster {
		if b.Aborted() {
			t.Error("the faster of two uploads was aborted")
		}
	}
}

// The rate of an upload is measured over its last interval of the pace.
func TestSlowBody_ProgressOfTheLastInterval(t *testing.T) {
	t.Parallel()
	rate := func(b *SlowBody) float64 {
		bytes, waited := b.Progress(time.Now())
		if waited < MinPace.each/2 {
			t.Errorf("the rate was measured over %s only", waited)
		}
		return float64(bytes) / waited.Seconds()
	}
	b := received(100<<20, 20*time.Second)
	if got := rate(b); got < BusyRate {
		t.Errorf("%.0f bytes/s while the upload is fast", got)
	}
	b.receive(3000, 45*time.Second)
	if got := rate(b); got > 3001 {
		t.Errorf("%.0f bytes/s, want 3000", got)
	}
	b.receive(2*BusyRate, MinPace.each)
	if got := rate(b); got < BusyRate {
		t.Errorf("%.0f bytes/s after the upload is fast again", got)
	}
}
