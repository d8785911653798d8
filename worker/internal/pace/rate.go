package pace

import (
	"context"
	"fmt"
	"strconv"
)

// rateKey is the Redis key of the account's rate, as one of the processes last read it. It expires after knownFor.
const rateKey = key + ":rate"

// storeRate stores the account's rate for the processes that cannot read the account. Of those that start at the same time
// only one can.
func (p *Pacer) storeRate(ctx context.Context, perSecond float64) error {
	if p.redis == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, redisTimeout)
	defer cancel()
	if err := p.redis.Set(ctx, rateKey, text(perSecond), knownFor).Err(); err != nil {
		return fmt.Errorf("store the account's send rate: %w", err)
	}
	return nil
}

// storedRate returns the stored rate; 0 if there is none or Redis does not answer. It also works after ctx has ended, as it
// does when the account does not answer.
func (p *Pacer) storedRate(ctx context.Context) float64 {
	if p.redis == nil {
		return 0
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), redisTimeout)
	defer cancel()
	perSecond, err := strconv.ParseFloat(p.redis.Get(ctx, rateKey).Val(), 64)
	if err != nil || !(perSecond > 0) {
		return 0
	}
	return perSecond
}
