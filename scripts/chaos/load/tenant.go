package load

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"time"

	"email-gateway/shared/service"
)

// What the tenants do beside handing over, as Notes.Steps counts it.
const (
	stepReplay   = "dead letters sent again"
	stepPause    = "mailings paused"
	stepResume   = "mailings resumed"
	stepSuppress = "addresses suppressed"
	stepDelete   = "recipients deleted"
	stepErase    = "persons erased"
)

// doomedEvery: of so many mailings one, the second to begin with, is cancelled.
const doomedEvery = 11

func doomed(n int) bool { return n%doomedEvery == 1 }

// withDoomed adds the doomed ones to as many as are to be sent.
func withDoomed(mailings int) int { return mailings + (mailings+doomedEvery-2)/(doomedEvery-1) }

// tendPause lies between two of the things that tend does.
const tendPause = 2 * time.Second

// tend does what tenants do with what they have handed over: they send again what failed,
// and stop a mailing for a moment.
func (l *Load) tend(ctx, offering context.Context) {
	random := rand.New(rand.NewPCG(l.params.Seed, 3))
	for n := 0; service.Pause(offering, tendPause) == nil; n++ {
		if n%2 == 0 {
			l.replay(ctx, l.params.Keys[random.IntN(len(l.params.Keys))])
			continue
		}
		pick, length := random.Uint64(), time.Duration(1000+random.IntN(3000))*time.Millisecond
		if all := l.Book.mailings(); len(all) > 0 {
			l.interrupt(ctx, all[pick%uint64(len(all))], length)
		}
	}
}

// replay sends again what failed so far. It is not repeated: the next one is soon.
func (l *Load) replay(ctx context.Context, key string) {
	body, _ := json.Marshal(map[string]any{"target": "email:send", "rate": 1000, "note": "caos"}) // maps of strings and numbers always can
	got, err := l.client.do(ctx, request{
		method: http.MethodPost, path: "/v1/dead-letters/retry", key: key, contentType: "application/json", body: body,
	})
	switch {
	case err != nil || repeatable(got.status):
	case got.status == http.StatusAccepted:
		l.Book.step(stepReplay)
	default:
		l.Book.refuse("replay: " + unexpected(got.status, got.body))
	}
}

// interrupt pauses a mailing, if it is on its way, and resumes it.
func (l *Load) interrupt(ctx context.Context, m Mailing, length time.Duration) {
	got, err := l.client.do(ctx, l.control(m, "pause"))
	switch {
	case err == nil && got.status == http.StatusConflict: // it has ended
		return
	case err == nil && got.status == http.StatusOK:
		l.Book.step(stepPause)
		_ = service.Pause(ctx, length) // cut short is resumed all the same
	}
	for try := 1; ; try++ { // also after an answer that was lost
		err := l.Resume(ctx, m)
		if err == nil {
			l.Book.step(stepResume)
			return
		}
		if again(ctx, try) != nil {
			return // rest resumes it
		}
	}
}

// stopWithin is how long after its upload a doomed mailing is cancelled, at most.
const stopWithin = 4 * time.Second

// stop cancels a mailing that is being sent.
func (l *Load) stop(ctx context.Context, m Mailing, n int) {
	random := rand.New(rand.NewPCG(l.params.Seed, uint64(4+n)))
	_ = service.Pause(ctx, time.Duration(random.Int64N(int64(stopWithin))))
	for try := 1; ; try++ {
		got, err := l.client.do(ctx, l.control(m, "cancel"))
		switch {
		case err == nil && got.status == http.StatusOK:
			l.Book.stop(m.ID)
			return
		case err == nil && got.status == http.StatusConflict: // it is done, or a cancellation before this one was taken
			return
		case err == nil && !repeatable(got.status):
			l.Book.refuse(fmt.Sprintf("cancel mailing %s: %s", m.ID, unexpected(got.status, got.body)))
			return
		}
		if again(ctx, try) != nil {
			return
		}
	}
}

func (l *Load) control(m Mailing, what string) request {
	return request{method: http.MethodPost, path: "/mailings/" + m.ID.String() + "/" + what, key: m.Key}
}

// suppress keeps the tenant's emails from the letter's address, and says whether it is
// sure of that.
func (l *Load) suppress(ctx context.Context, next letter) bool {
	body, _ := json.Marshal(map[string]any{"address": Address(next.serial), "reason": "MANUAL"}) // maps of strings always can
	r := request{method: http.MethodPost, path: "/v1/suppressions", key: next.key, contentType: "application/json", body: body}
	for try := 1; ; try++ {
		got, err := l.client.do(ctx, r)
		switch {
		case err == nil && got.status == http.StatusOK:
			l.Book.step(stepSuppress)
			return true
		case err == nil && !repeatable(got.status):
			l.Book.refuse(fmt.Sprintf("suppress letter %d: %s", next.serial, unexpected(got.status, got.body)))
			return false
		}
		if again(ctx, try) != nil {
			return false
		}
	}
}
