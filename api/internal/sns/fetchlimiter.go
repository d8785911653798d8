package sns

import (
	"net/netip"
	"sync"

	"golang.org/x/time/rate"

	"email-gateway/shared/clientip"
)

// A host of SNS shows one certificate at a time, for a year or so, but a sender of invented
// certificate names causes a fetch with each message. So each sender has a burst of 20 fetches and
// one more every 3 s (clientip.Guard), and each host a burst of 100 and 10 per second: the bursts
// of 5 senders, or the steady rate of 30. More senders than that can delay a fetch for SNS.
const fetchRate, fetchBurst = 10, 100

// fetchLimiter bounds the fetches of certificates, by host and by sender.
type fetchLimiter struct {
	senders *clientip.Guard

	mu    sync.Mutex
	hosts map[string]*rate.Limiter // few: only those of the topics' regions are asked
}

func newFetchLimiter() *fetchLimiter {
	return &fetchLimiter{senders: clientip.NewGuard(), hosts: map[string]*rate.Limiter{}}
}

// allow takes one fetch from the host because of a message from the sender.
func (l *fetchLimiter) allow(host string, sender netip.Addr) bool {
	if l.senders.Wrong(sender) > 0 {
		return false // and takes nothing from the host
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
