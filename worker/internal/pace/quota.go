package pace

import (
	"context"
	"log/slog"
	"time"

	"email-gateway/shared/service"
)

// Peers counts the processes among which the rate is divided while Redis is away,
// this one included.
type Peers func(ctx context.Context) (int, error)

// quotaInterval is how often the account is asked: its answers change rarely, and
// the provider allows one such question per second for the whole account.
const quotaInterval = time.Minute

// quotaRetry is how soon it is asked again after it did not answer.
const quotaRetry = 10 * time.Second

// Account tells how many emails per second the provider account may send.
type Account interface {
	MaxSendRate(ctx context.Context) (float64, error)
}

// NewQuota makes the loop that keeps the pacer at the account's own rate. While the
// account cannot be asked (an emulator may not know the question) fallback holds.
func NewQuota(log *slog.Logger, pacer *Pacer, account Account, peers Peers, fallback float64) *service.Loop {
	q := &quota{log: log, pacer: pacer, account: account, peers: peers, fallback: fallback}
	return service.NewLoop(service.LoopParams{Log: log, Interval: quotaRetry, RunOnce: q.runOnce})
}

type quota struct {
	log      *slog.Logger
	pacer    *Pacer
	account  Account
	peers    Peers
	fallback float64
	unknown  bool      // the account did not answer the last time
	known    time.Time // when it last did
}

func (q *quota) runOnce(ctx context.Context) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, quotaRetry)
	defer cancel()
	if q.unknown || time.Since(q.known) >= quotaInterval {
		q.pacer.SetRate(q.ask(ctx))
	}
	n, err := q.peers(ctx)
	if err != nil {
		return false, err
	}
	q.pacer.SetProcesses(n)
	return false, nil
}

// ask returns the rate to go by, and logs when it is another than before.
func (q *quota) ask(ctx context.Context) float64 {
	perSecond, err := q.account.MaxSendRate(ctx)
	if err != nil || perSecond <= 0 {
		if !q.unknown {
			q.log.Warn("send rate of the account unknown, using SES_MAX_SEND_RATE", "rate", q.fallback, "error", err)
		}
		q.unknown = true
		return q.fallback
	}
	if q.unknown || perSecond != q.pacer.Rate() {
		q.log.Info("send rate of the account", "rate", perSecond)
	}
	q.unknown, q.known = false, time.Now()
	return perSecond
}
