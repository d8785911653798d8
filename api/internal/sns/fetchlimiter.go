package sns

import (
	"net/netip"
	"sync"

	"golang.org/x/time/rate"

	"email-gateway/shared/clientip"
)

// An SNS host uses one certificate at a time, for about a year, but a sender of invented certificate
// names causes a fetch with each message. So each sender has a burst of 20 fetches and one more every
// 3 s (clientip.Guard), and each host a burst of 100 and 10 per second: the bursts of 5 senders, or the
// steady rate of 30. More senders than that can delay a fetch for SNS.
const fetchRate, fetchBurst = 10, 100

// fetchLimiter limits certificate fetches by host and by sender.
type fetchLimiter struct {
	senders *clientip.Guard

	mu    sync.Mutex
	hosts map[string]*rate.Limiter // few: only the regions of the topics
}

func newFetchLimiter() *fetchLimiter {
	return &fetchLimiter{senders: clientip.NewGuard(), hosts: map[string]*rate.Limiter{}}
}

// allow counts one fetch from the host, caused by a message of the sender.
func (l *fetchLimiter) allow(host string, sender netip.Addr) bool {
	if l.senders.Wrong(sender) > 0 {
		return false // does not count against the host
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	limiter := l.hosts[host]
	if limiter == nil {
		limiter = rate.NewLimiter(fetchRate, fetchBurst)
		l.hosts[host] = limiter
	}
	return limiter.Allow()
}
