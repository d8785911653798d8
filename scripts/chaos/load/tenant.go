package load

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/google/uuid"

	"email-gateway/shared/service"
)

// The tenants' further requests, as Records.Steps counts them.
const (
	stepReplay   = "dead letters sent again"
	stepPause    = "mailings paused"
	stepResume   = "mailings resumed"
	stepSuppress = "addresses suppressed"
	stepDelete   = "recipients deleted"
	stepErase    = "persons erased"
)

// cancelEvery: one mailing of so many, the second of each, is cancelled.
const cancelEvery = 11

func isCancelled(n int) bool { return n%cancelEvery == 1 }

// withCancelled returns the number of uploads for this number of mailings that are not cancelled.
func withCancelled(mailings int) int { return mailings + (mailings+cancelEvery-2)/(cancelEvery-1) }

// managePause is the pause between two requests of tend.
const managePause = 2 * time.Second

// manage acts on submitted emails and mailings as tenants do: it sends failed emails again, and
// pauses a mailing for some seconds.
func (l *Load) manage(ctx, offering context.Context) {
	random := rand.New(rand.NewPCG(l.params.Seed, 3))
	unsure := make(map[uuid.UUID]bool)
	for n := 0; service.Pause(offering, managePause) == nil; n++ {
		if n%2 == 0 {
			l.replay(ctx, l.params.Keys[random.IntN(len(l.params.Keys))])
			continue
		}
		pick, length := random.Uint64(), time.Duration(1000+random.IntN(3000))*time.Millisecond
		if all := l.Ledger.mailings(); len(all) > 0 {
			l.pauseAndResume(ctx, all[pick%uint64(len(all))], length, unsure)
		}
	}
}

// replay sends failed emails again. It is not repeated on failure, because the next call follows
// soon.
func (l *Load) replay(ctx context.Context, key string) {
	body, _ := json.Marshal(map[string]any{"target": "email:send", "rate": 1000, "note": "caos"}) // maps of strings and numbers always can
	got, err := l.client.do(ctx, request{
		method: http.MethodPost, path: "/v1/dead-letters/retry", key: key, contentType: "application/json", body: body,
	})
	switch {
	case err != nil || got.retryable():
	case got.status == http.StatusAccepted:
		l.Ledger.countStep(stepReplay)
	default:
		l.Ledger.addRefusal("replay: " + unexpectedResponse(got.status, got.body))
	}
}

// pauseAndResume pauses a mailing that is being sent, and resumes it. An api may still execute a resume whose response was lost:
// the mailing is unsure then, and its later pauses prove nothing.
func (l *Load) pauseAndResume(ctx context.Context, m Mailing, length time.Duration, unsure map[uuid.UUID]bool) {
	got, err := l.client.do(ctx, l.control(m, "pause"))
	switch {
	case err == nil && got.status == http.StatusConflict: // it has ended
		return
	case err == nil && got.status == http.StatusOK:
		l.Ledger.countStep(stepPause)
		from := time.Now()
		_ = service.Pause(ctx, length) // resume even if ctx ends
		if !unsure[m.ID] {
			l.Ledger.addPause(Pause{m.ID, from, time.Now()})
		}
	}
	for try := 1; ; try++ { // also after a lost response
		err := l.Resume(ctx, m)
		if err == nil {
			l.Ledger.countStep(stepResume)
			return
		}
		unsure[m.ID] = true
		if backoff(ctx, try) != nil {
			return // resumeStuck resumes it
		}
	}
}

// maxCancelDelay is the maximum time from the upload of a mailing to its cancellation.
const maxCancelDelay = 4 * time.Second

// cancelMailing cancels a mailing that is being sent.
func (l *Load) cancelMailing(ctx context.Context, m Mailing, n int) {
	random := rand.New(rand.NewPCG(l.params.Seed, uint64(4+n)))
	_ = service.Pause(ctx, time.Duration(random.Int64N(int64(maxCancelDelay))))
	for try := 1; ; try++ {
		got, err := l.client.do(ctx, l.control(m, "cancel"))
		switch {
		case err == nil && got.status == http.StatusOK:
			l.Ledger.addStopped(m.ID)
			return
		case err == nil && got.status == http.StatusConflict: // it is complete, or an earlier request cancelled it
			return
		case err == nil && !got.retryable():
			l.Ledger.addRefusal(fmt.Sprintf("cancel mailing %s: %s", m.ID, unexpectedResponse(got.status, got.body)))
			return
		}
		if backoff(ctx, try) != nil {
			return
		}
	}
}

func (l *Load) control(m Mailing, what string) request {
	return request{method: http.MethodPost, path: "/mailings/" + m.ID.String() + "/" + what, key: m.Key}
}

// suppress suppresses the email's address, and reports whether the response confirmed it.
func (l *Load) suppress(ctx context.Context, next email) bool {
	body, _ := json.Marshal(map[string]any{"address": Address(next.serial), "reason": "MANUAL"}) // maps of strings always can
	r := request{method: http.MethodPost, path: "/v1/suppressions", key: next.key, contentType: "application/json", body: body}
	for try := 1; ; try++ {
		got, err := l.client.do(ctx, r)
		switch {
		case err == nil && got.status == http.StatusOK:
			l.Ledger.countStep(stepSuppress)
			return true
		case err == nil && !got.retryable():
			l.Ledger.addRefusal(fmt.Sprintf("suppress address of email %d: %s", next.serial, unexpectedResponse(got.status, got.body)))
			return false
		}
		if backoff(ctx, try) != nil {
			return false
		}
	}
}
