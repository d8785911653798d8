package webhook

import (
	"context"
	"time"

	webhookstore "email-gateway/shared/store/webhook"
)

const (
	// listRest is the pause after a listing as a multiple of its duration, since a listing reads every endpoint of the
	// installation: listings take a tenth of one connection's time. maxListRest limits the delay of new events.
	listRest    = 9
	maxListRest = 10 * time.Second
)

// behind lists endpoints with new events, if there may be some that the last listing did not contain. Until the next listing may
// begin, it returns those of the last one that were not started. head is the newest event, and free how many endpoints can be
// served now.
func (s *Service) behind(ctx context.Context, head int64, free, limit int) ([]webhookstore.Work, error) {
	start := time.Now()
	if start.Before(s.relists) {
		return s.unstarted, nil
	}
	s.unstarted = nil
	if ended := s.ended.Swap(false); !ended && head == s.head && start.Sub(s.listed) < s.relist {
		return nil, nil
	}
	behind, err := s.p.Store.Behind(ctx, s.p.ProbeAfter, limit)
	now := time.Now()
	s.relists = now.Add(min(listRest*now.Sub(start), maxListRest))
	if err != nil {
		s.listed = time.Time{} // so that a later round lists them
		return nil, err
	}
	behind = s.failures.without(behind)
	// If more endpoints are behind than can be served now, a later round lists them again.
	if len(behind) < free {
		s.head, s.listed = head, now
	}
	s.unstarted = behind
	return behind, nil
}
