// Package load is the load generator of the chaos run: it acts as tenants that submit emails,
// recipients and mailings without a pause, records every response, and repeats requests without a
// response under the same Idempotency-Key, as a careful program does. Only the chaos run uses it.
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

// Params configure a Load.
type Params struct {
	APIs []string // URLs; each request goes to one of them
	Keys []string // one per tenant
	// QuietKey is the key of a tenant that sends few emails; "" = there is none.
	QuietKey string
	Seed     uint64
	// Erase erases a person from the data of the tenant with that number, as an operator does.
	Erase func(ctx context.Context, tenant int, address string) error
	// Rate is the number of emails submitted per second. Emails delayed by an outage are submitted
	// afterwards.
	Rate     float64
	Duration time.Duration
	// Lead is the part at the beginning of Duration in which no mailing is uploaded.
	Lead time.Duration
	// Sent returns the number of emails that SES has accepted so far, those of mailings too. While
	// more emails than the backlog of Pace are unsent, no new ones are submitted: the run checks
	// for lost emails, not for the speed of a shared machine.
	Sent func() int
	// Mailings is the number of mailings, uploaded at equal intervals; for every ten there is one
	// more that is cancelled while it is being sent. Pace sets their number of rows.
	Mailings int
	// RetryTimeout is how long after the end requests without a response are repeated.
	RetryTimeout time.Duration
}

// Load generates requests and records the responses.
type Load struct {
	Ledger *Ledger

	params  Params
	client  *client
	backlog atomic.Int64
	rows    atomic.Int64 // of a mailing
	end     time.Time    // of Run's load
}

// New returns a Load that has not started.
func New(p Params) *Load {
	l := &Load{Ledger: newLedger(), params: p}
	l.client = newClient(p.APIs, p.Seed, l.Ledger.addRefusal)
	l.backlog.Store(maxBacklog)
	l.rows.Store(leastRows)
	return l
}

// Pace sets the emails per second that this machine can send. This limits the backlog, which must
// be sent within the minute after the run, and the rows of later mailings.
func (l *Load) Pace(rate float64) {
	l.backlog.Store(int64(min(max(rate*backlogTime.Seconds(), leastBacklog), maxBacklog)))
	l.rows.Store(int64(min(max(rate*mailingTime.Seconds(), leastRows), maxRows)))
}

const (
	// backlogTime is how long sending the backlog may take on this machine. The rest of the minute
	// after the run is for retries.
	backlogTime = 25 * time.Second
	// leastBacklog and maxBacklog limit it on any machine.
	leastBacklog, maxBacklog = 500, 6000
	// mailingTime is how long the machine needs for a mailing: a fifth of the time between two
	// uploads in a run of 20 minutes, since faults stop all sending for up to two thirds of it.
	mailingTime = 10 * time.Second
	// leastRows and maxRows limit a mailing on any machine. Sending it must take long enough for a
	// pause or a cancellation: leastRows take 5 s at 40 emails/s.
	leastRows, maxRows = 200, 2000
	// senders is the maximum number of concurrent submissions.
	senders = 48
	// backlogEvery is the number of emails between two checks of the backlog, backlogPause the
	// pause while it is too large.
	backlogEvery, backlogPause = 50, 200 * time.Millisecond
	// recipientPause is the pause between two imports of recipients.
	recipientPause = time.Second
	// uploadFrom and uploadTo are the part of the run in which mailings are uploaded: after its
	// beginning, and with enough time left for sending.
	uploadFrom, uploadTo = 0.02, 0.6
)

// Run generates load until the duration is over and every request has a response, or until the
// timeout.
func (l *Load) Run(ctx context.Context) {
	offering, stop := context.WithTimeout(ctx, l.params.Duration)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, l.params.Duration+l.params.RetryTimeout)
	defer cancel()
	l.end = time.Now().Add(l.params.Duration)
	l.createTemplates(ctx)

	emails := make(chan email)
	var working sync.WaitGroup
	working.Go(func() { l.generate(offering, emails) })
	for range senders {
		working.Go(func() {
			for next := range emails {
				l.send(ctx, next)
			}
		})
	}
	working.Go(func() { l.sendAttached(ctx, offering) })
	working.Go(func() { l.sendBatches(ctx, offering) })
	working.Go(func() { l.importRecipients(ctx, offering) })
	working.Go(func() { l.manage(ctx, offering) })
	working.Go(func() { l.sendQuietly(ctx, offering) })
	working.Go(func() { l.describePersons(ctx, offering) })
	for n := range withCancelled(l.params.Mailings) {
		working.Go(func() { l.uploadMailing(ctx, offering, n) })
	}
	working.Wait()
	l.client.close()
}

// generate generates emails at the rate, and closes the channel at the end.
func (l *Load) generate(offering context.Context, emails chan<- email) {
	defer close(emails)
	random := rand.New(rand.NewPCG(l.params.Seed, 1))
	start := time.Now()
	for serial := 0; ; serial++ {
		due := start.Add(time.Duration(float64(serial) / l.params.Rate * float64(time.Second)))
		if wait := time.Until(due); wait > 0 && service.Pause(offering, wait) != nil {
			return
		}
		if serial%backlogEvery == 0 && l.awaitBacklog(offering) != nil {
			return
		}
		next := l.newEmail(random, serial)
		select {
		case emails <- next:
		case <-offering.Done():
			return
		}
	}
}

// uploadAt returns when a mailing is uploaded, from the beginning of the run.
func (l *Load) uploadAt(n int) time.Duration {
	all := float64(withCancelled(l.params.Mailings))
	share := uploadFrom + (uploadTo-uploadFrom)*float64(n)/max(1, all-1)
	if l.params.Duration > 5*time.Minute { // then there is always time left
		share = float64(n) / all * 0.95
	}
	return l.params.Lead + time.Duration(share*float64(l.params.Duration-l.params.Lead))
}

// backoff pauses before a request is repeated, with a linear backoff.
func backoff(ctx context.Context, try int) error {
	return service.Pause(ctx, min(time.Duration(try)*50*time.Millisecond, time.Second))
}

func unexpectedResponse(status int, response []byte) string {
	return fmt.Sprintf("%d %.300s", status, response)
}
