package mailing

import (
	"context"
	"time"

	"golang.org/x/sync/errgroup"

	"email-gateway/shared/email"
	mailingstore "email-gateway/shared/store/mailing"
	"email-gateway/worker/internal/mx"
)

// domainChecks is the number of concurrent domain checks of a batch.
const domainChecks = 16

// checkDomains checks each domain of the entries once, and returns the entries up to the first whose domain was not
// checked before the job's time was over: name servers that do not answer must not delay other mailings. The next job
// checks the rest. It sends heartbeats meanwhile, because DNS may be slow.
func (r *run) checkDomains(stop, ctx context.Context, entries []mailingstore.ExpandableEntry) ([]mailingstore.ExpandableEntry, map[string]mx.Result, error) {
	checking, cancel := context.WithCancel(stop)
	defer cancel()
	var domains map[string]mx.Result
	var failed error
	done := make(chan struct{})
	go func() {
		defer close(done)
		domains, failed = r.checkEach(checking, domainsOf(entries))
	}()
	beat := time.NewTicker(r.heartbeat())
	defer beat.Stop()
	for {
		select {
		case <-done:
			if stop.Err() != nil {
				return nil, nil, errStopped
			}
			return checked(entries, domains), domains, failed
		case <-beat.C:
			held, err := r.Store.HoldMailing(ctx, r.job)
			if err == nil && !held {
				err = errLost
			}
			if err != nil {
				cancel()
				<-done
				return nil, nil, err
			}
		}
	}
}

// domainsOf returns the domains of the pending entries in order of first use.
func domainsOf(entries []mailingstore.ExpandableEntry) (domains []string) {
	seen := make(map[string]bool)
	for i := range entries {
		if domain := email.DomainOf(entries[i].Email); entries[i].Pending && !seen[domain] {
			seen[domain] = true
			domains = append(domains, domain)
		}
	}
	return domains
}

// checked returns the entries before the first pending one whose domain has no result.
func checked(entries []mailingstore.ExpandableEntry, domains map[string]mx.Result) []mailingstore.ExpandableEntry {
	for i := range entries {
		if _, ok := domains[email.DomainOf(entries[i].Email)]; entries[i].Pending && !ok {
			return entries[:i]
		}
	}
	return entries
}

// checkEach returns the results of the domains, which it checks in this order. When the job's time is over it waits for the
// checks in progress and begins no others. It always checks the first domain, so that each job makes progress.
func (r *run) checkEach(ctx context.Context, domains []string) (map[string]mx.Result, error) {
	results := make([]*mx.Result, len(domains))
	checks, ctx := errgroup.WithContext(ctx)
	checks.SetLimit(domainChecks)
	for i, domain := range domains {
		checks.Go(func() error {
			if i > 0 && r.over() {
				return nil
			}
			result, err := r.Domains.Check(ctx, domain)
			if err == nil {
				results[i] = &result
			}
			return err
		})
	}
	err := checks.Wait()
	found := make(map[string]mx.Result, len(domains))
	for i, result := range results {
		if result != nil {
			found[domains[i]] = *result
		}
	}
	return found, err
}
