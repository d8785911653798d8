// Package load is the tenants of the chaos run: they hand over emails, recipients and
// mailings without a pause, write down every answer, and repeat what was not answered
// under the same Idempotency-Key, as a careful program does. It is used by the chaos run
// only.
package load

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"email-gateway/shared/service"
)

// Params make a Load.
type Params struct {
	APIs []string // URLs; each request goes to any of them
	Keys []string // one per tenant
	// QuietKey is the key of a tenant that sends an email now and then; "" = there is none.
	QuietKey string
	Seed     uint64
	// Erase takes a person out of everything that the tenant of that number holds, as an
	// operator does.
	Erase func(ctx context.Context, tenant int, address string) error
	// Rate is how many emails are offered per second. What an outage held up is made up
	// for afterwards.
	Rate     float64
	Duration time.Duration
	// Lead is the part at the beginning of Duration in which no mailing is uploaded.
	Lead time.Duration
	// Sent counts the emails that SES has taken so far, mailings' ones too. When more than
	// the backlog of Pace are on their way nothing new is offered: what is held against the
	// gateway is what it loses, not how fast the machine is that it shares with everything else.
	Sent func() int
	// Mailings are uploaded at even distances, and for every ten one more that is cancelled
	// while it is sent. Pace says how many rows each has.
	Mailings int
	// Patience is how long after the end what is still unanswered is repeated.
	Patience time.Duration
}

// Load offers, and remembers what came of it.
type Load struct {
	Book *Book

	params  Params
	client  *client
	backlog atomic.Int64
	rows    atomic.Int64 // of a mailing
}

// New makes a load that has not begun.
func New(p Params) *Load {
	l := &Load{Book: newBook(), params: p, client: newClient(p.APIs, p.Seed)}
	l.backlog.Store(maxBacklog)
	l.rows.Store(leastRows)
	return l
}

// Pace takes the emails per second that this machine can send. They bound the backlog, which must be
// sent within the minute after the run, and the rows of the mailings that are uploaded from now on.
func (l *Load) Pace(rate float64) {
	l.backlog.Store(int64(min(max(rate*backlogTime.Seconds(), leastBacklog), maxBacklog)))
	l.rows.Store(int64(min(max(rate*mailingTime.Seconds(), leastRows), maxRows)))
}

const (
	// backlogTime is how long the machine may need for the backlog, and the rest of the minute
	// is for retries.
	backlogTime = 25 * time.Second
	// leastBacklog and maxBacklog bound it on any machine.
	leastBacklog, maxBacklog = 500, 6000
	// mailingTime is how long the machine needs for a mailing: a fifth of the time between two
	// uploads in a run of 20 minutes, since faults stop all sending for up to two thirds of it.
	mailingTime = 10 * time.Second
	// leastRows and maxRows bound a mailing on any machine. It must be on its way for long enough to
	// be paused or cancelled: leastRows take 5 s at 40 emails/s.
	leastRows, maxRows = 200, 2000
	// senders are the emails that may be under way to the apis at once.
	senders = 48
	// backlogEvery is after how many letters the backlog is looked at, backlogPause how long
	// it is given to shrink.
	backlogEvery, backlogPause = 50, 200 * time.Millisecond
	// recipientPause lies between two intakes of recipients.
	recipientPause = time.Second
	// uploadFrom and uploadTo are the part of the run in which mailings are uploaded:
	// from its beginning, and with time left to be sent.
	uploadFrom, uploadTo = 0.02, 0.6
)

// Run offers until the duration is over and every answer is known, or patience ends.
func (l *Load) Run(ctx context.Context) {
	offering, stop := context.WithTimeout(ctx, l.params.Duration)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, l.params.Duration+l.params.Patience)
	defer cancel()

	letters := make(chan letter)
	var working sync.WaitGroup
	working.Go(func() { l.write(offering, letters) })
	for range senders {
		working.Go(func() {
			for next := range letters {
				l.send(ctx, next)
			}
		})
	}
	working.Go(func() { l.introduce(ctx, offering) })
	working.Go(func() { l.tend(ctx, offering) })
	working.Go(func() { l.sendQuietly(ctx, offering) })
	working.Go(func() { l.describe(ctx, offering) })
	for n := range withDoomed(l.params.Mailings) {
		working.Go(func() { l.mail(ctx, offering, n) })
	}
	working.Wait()
	l.client.close()
}

// write makes letters at the rate, and closes the channel at the end.
func (l *Load) write(offering context.Context, letters chan<- letter) {
	defer close(letters)
	random := rand.New(rand.NewPCG(l.params.Seed, 1))
	begun := time.Now()
	for serial := 0; ; serial++ {
		due := begun.Add(time.Duration(float64(serial) / l.params.Rate * float64(time.Second)))
		if wait := time.Until(due); wait > 0 && service.Pause(offering, wait) != nil {
			return
		}
		for serial%backlogEvery == 0 && int64(l.Book.Expected()-l.params.Sent()) > l.backlog.Load() {
			if service.Pause(offering, backlogPause) != nil {
				return
			}
		}
		next := newLetter(random, serial, l.params.Keys[serial%len(l.params.Keys)], begun.Add(l.params.Duration))
		select {
		case letters <- next:
		case <-offering.Done():
			return
		}
	}
}

// uploadAt is when a mailing is due.
func (l *Load) uploadAt(n int) time.Duration {
	all := float64(withDoomed(l.params.Mailings))
	share := uploadFrom + (uploadTo-uploadFrom)*float64(n)/max(1, all-1)
	if l.params.Duration > 5*time.Minute { // then there is always time left
		share = float64(n) / all * 0.95
	}
	return l.params.Lead + time.Duration(share*float64(l.params.Duration-l.params.Lead))
}

// again pauses before a request is repeated, a little longer each time.
func again(ctx context.Context, try int) error {
	return service.Pause(ctx, min(time.Duration(try)*50*time.Millisecond, time.Second))
}

func unexpected(status int, answer []byte) string {
	return fmt.Sprintf("%d %.300s", status, answer)
}
