package breaker

import (
	"context"
	"time"
)

// Account handles what the provider reports about the account: the code with which it refuses all
// email, or "" if it accepts email. A refusal opens the breaker before any email gets it; the end
// of the refusal closes it, unless the failure of an email has opened it since: the account may be
// fine while one of its parts refuses. Of the probes only an accepted one closes a breaker that the account opened.
//
// Each process acts on a refusal once, until the refusal ends, its code changes, or a standby is
// promoted that has not received the opening. So if a probe succeeds although the account still
// reports a refusal, this process keeps the breaker closed. That is stored in memory only: a process
// that reads the refusal for the first time after the probe opens the breaker again, until the next
// probe succeeds.
//
// Account is not safe for concurrent use: one loop calls it.
func (b *Breaker) Account(ctx context.Context, refusal string) {
	if refusal == "" {
		b.accountAccepts(ctx)
	} else {
		b.accountRefuses(ctx, refusal)
	}
}

// handledRefusal is the last refusal of the account that was handled.
type handledRefusal struct {
	code     string // "" = the account accepts email
	openings int64  // how often the breaker had been opened then
}

func (b *Breaker) accountRefuses(ctx context.Context, code string) {
	before, err := b.store.Breaker(ctx)
	if err == nil && code == b.refusal.code && before.Openings >= b.refusal.openings {
		return
	}
	opened := false
	if err == nil {
		opened, err = b.store.OpenBreakerByAccount(ctx, code, b.instance)
	}
	if err != nil {
		b.log.Log(ctx, levelOf(err), "cannot open the circuit breaker, retrying at the next account check", "code", code, "error", err)
		return
	}
	b.refusal = handledRefusal{code: code, openings: before.Openings}
	if opened {
		b.refusal.openings++
		b.metrics.countOpen(code, 1)
		b.log.Error("circuit breaker opened: the provider's account accepts no email; only a probe is sent every few seconds, until the account or a probe shows that it does",
			"code", code)
	}
}

func (b *Breaker) accountAccepts(ctx context.Context) {
	b.refusal = handledRefusal{}
	was, closed, err := b.store.CloseBreakerByAccount(ctx, b.instance)
	switch {
	case err != nil:
		b.log.Log(ctx, levelOf(err), "cannot close the circuit breaker, retrying at the next probe or account check", "error", err)
	case closed:
		b.log.Info("circuit breaker closed: the provider's account accepts email again", "code", was.Reason, "parked", was.Duration.Round(time.Millisecond).String())
	}
}
