package pace

import (
	"context"
	"math"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
)

// The rate after a throttling response. It is halved at once and returns to the previous rate within regainTime, at a
// decreasing speed, and then to the full rate within recovery, at an increasing speed. Most of the time it is thus a
// little below the rate that the provider really accepts, and a higher accepted rate is detected soon.
const (
	cutFactor  = 0.5
	regainTime = 30 * time.Second
	recovery   = time.Minute
	// doubling limits how fast the rate returns after consecutive cuts, when it is far below from. The pacer calls a
	// provider that refuses all calls less and less often. If the provider refused for 5 s, the rate is at half of its
	// previous value 10 s after the provider accepts calls again.
	doubling = 2 * time.Second
	// cutPause is the minimum time between two cuts. Providers measure the rate over about a second, so they keep
	// refusing for that time because of the calls before the cut.
	cutPause = time.Second
	// minRate is the minimum rate after cuts: without calls the pacer cannot detect a higher accepted rate.
	minRate = 1
)

// cut is the last throttling.
type cut struct {
	at time.Time // by this process's clock; zero = never
	// from is the rate that is reached again within regainTime. low is the rate right after the cut.
	from, low float64
	redisTime string // at, by Redis's clock, as stored in Redis; "" = not in Redis
}

// rate returns the current send rate if the account allows full.
func (c cut) rate(full float64, now time.Time) float64 {
	since := now.Sub(c.at)
	if c.at.IsZero() || since >= recovery {
		return full
	}
	ceiling := min(c.from, full)
	low := min(max(c.low, minRate), full)
	if since < regainTime {
		missing := 1 - max(since.Seconds(), 0)/regainTime.Seconds()
		doubled := low * math.Exp2(max(since.Seconds(), 0)/doubling.Seconds())
		return max(min(ceiling-(ceiling-low)*missing*missing*missing, doubled), low)
	}
	beyond := (since - regainTime).Seconds() / (recovery - regainTime).Seconds()
	return ceiling + (full-ceiling)*beyond*beyond*beyond
}

// next returns the cut that follows c, which halves the rate. If the provider has accepted calls since c, it accepts
// less than the current rate, and from is that rate. If it has accepted none, it refuses calls at any rate, so from
// stays: otherwise each further second would halve it too.
func (c cut) next(full float64, now time.Time, accepted bool) cut {
	rate := c.rate(full, now)
	next := cut{at: now, from: rate, low: rate * cutFactor}
	if !accepted && !c.at.IsZero() && now.Sub(c.at) < recovery {
		next.from = max(c.from, rate)
	}
	return next
}

// cutRate cuts the rate now and empties the bucket, if ARGV[1] is the time of the last cut and at least ARGV[5]
// microseconds have passed since then: a process that does not know the last cut does not know the rate either. It
// returns the time of the last cut, its age in milliseconds and its two rates.
//
// KEYS[1] bucket, ARGV[1] the last cut, ARGV[2] and ARGV[3] the rate to return to if the provider has accepted a call
// since the last cut and if it has not, ARGV[4] the new rate, ARGV[5] the minimum pause
var cutRate = redis.NewScript(readClock + `
local bucket = redis.call('HMGET', KEYS[1], 'cut_at', 'cut_from', 'cut_low', 'accepted_at')
local last, from, low = bucket[1] or '', bucket[2] or '0', bucket[3] or '0'
if last == ARGV[1] and at - (tonumber(last) or 0) >= tonumber(ARGV[5]) then
    from = (tonumber(bucket[4]) or 0) >= (tonumber(last) or 0) and ARGV[2] or ARGV[3]
    last, low = string.format('%.0f', at), ARGV[4]
    redis.call('HSET', KEYS[1], 'tokens', '0', 'at', last, 'cut_at', last, 'cut_from', from, 'cut_low', low)
    redis.call('PEXPIRE', KEYS[1], 120000)
end
return {last, math.floor((at - (tonumber(last) or at)) / 1000), from, low}`)

// Throttled halves the rate for all processes, because the provider refused a call that began at begun. It ignores
// calls that began before the last cut, and all calls within cutPause after it.
func (p *Pacer) Throttled(start time.Time) {
	p.cutting.Lock()
	defer p.cutting.Unlock()
	last := p.last.Load()
	if !last.at.IsZero() && (start.Before(last.at) || p.now().Sub(last.at) < cutPause) {
		return
	}
	if !p.cutShared(last, start) {
		p.adopt(p.nextCut())
	}
}

// Accepted records that the provider accepted a call that began at begun. This process reports it to the others when it
// next fetches tokens.
func (p *Pacer) Accepted(start time.Time) {
	at := start.UnixNano()
	for {
		before := p.accepted.Load()
		if before >= at || p.accepted.CompareAndSwap(before, at) {
			return
		}
	}
}

// nextCut returns the cut for a throttling response that arrives now.
func (p *Pacer) nextCut() cut {
	last := p.last.Load()
	return last.next(p.FullRate(), p.now(), p.accepted.Load() >= last.at.UnixNano())
}

// cutShared cuts the rate in Redis because of a call that began at begun, or adopts another process's cut. It returns
// false if Redis does not answer.
func (p *Pacer) cutShared(last *cut, start time.Time) bool {
	if p.redis == nil {
		return false
	}
	ctx, cancel := context.WithTimeout(context.Background(), redisTimeout)
	defer cancel()
	redisTime := last.redisTime
	for range 2 { // the first round reads the last cut if this process does not know it
		next := p.nextCut()
		answer, err := cutRate.Run(ctx, p.redis, []string{key}, redisTime, text(p.Rate()), text(next.from), text(next.low), cutPause.Microseconds()).Slice()
		if err != nil {
			return false
		}
		if len(answer) > 0 && answer[0] == "" && redisTime != "" {
			redisTime = "" // Redis has lost the known cut: the key expired or was deleted
			continue
		}
		now, known := p.cutOf(answer)
		if !known {
			return false
		}
		if now.at.After(p.last.Load().at) {
			p.adopt(now)
		}
		if now.redisTime == redisTime || start.Before(now.at) || p.now().Sub(now.at) < cutPause {
			return true
		}
		redisTime = now.redisTime
	}
	return true
}

// cutOf parses a script's result about the last cut: its redisTime, its age in milliseconds and its
// rates.
func (p *Pacer) cutOf(answer []any) (last cut, known bool) {
	if len(answer) != 4 {
		return cut{}, false
	}
	redisTime, _ := answer[0].(string)
	age, _ := answer[1].(int64)
	from, low := number(answer[2]), number(answer[3])
	if redisTime == "" || from <= 0 {
		return cut{}, false
	}
	if low <= 0 || low > from { // a process of an older release stores only from
		low = from * cutFactor
	}
	return cut{at: p.now().Add(-time.Duration(age) * time.Millisecond), from: from, low: low, redisTime: redisTime}, true
}

// text formats a rate for Redis.
func text(rate float64) string { return strconv.FormatFloat(rate, 'f', -1, 64) }

// number parses a number stored as text; 0 if it is invalid.
func number(value any) float64 {
	digits, _ := value.(string)
	n, _ := strconv.ParseFloat(digits, 64)
	return n
}

// adopt makes c the current cut. p.cutting must be held.
func (p *Pacer) adopt(c cut) {
	p.last.Store(&c)
	select {
	case p.changed <- struct{}{}:
	default:
	}
}

// adoptShared adopts another process's cut from a script's result.
func (p *Pacer) adoptShared(answer []any) {
	c, known := p.cutOf(answer)
	if !known || c.redisTime == p.last.Load().redisTime {
		return
	}
	p.cutting.Lock()
	defer p.cutting.Unlock()
	if last := p.last.Load(); c.at.After(last.at) {
		p.adopt(c)
	}
}
