package attachment

import (
	"time"

	"github.com/google/uuid"
)

const (
	// starvedAfter is how long an email is refused before it may reserve room. For as long after an admission with a
	// reservation, other companies need not leave room for the next one of the same company.
	starvedAfter = 2 * time.Second
	// reservedWait limits how long an email waits in its task for the room that it has reserved. With readTime, the wait for
	// the send rate and the call it must stay below the timeout of a task, 120 s.
	reservedWait = 10 * time.Second
	// returnTime is how long the room stays reserved while the email is postponed by minDelay.
	returnTime = minDelay + 15*time.Second
	// rememberTime is how long a refused email is remembered after its last try: the longest delay and a margin.
	rememberTime = maxDelay + 30*time.Second
	// rememberedEmails limits the memory per company.
	rememberedEmails = 1000
)

// reservations give room in the budget to emails that are refused again and again because smaller ones always fit first.
// One email at a time has a reservation: of the starved emails that come back, the one that has waited longest, but another
// company's before a second one of the same company. Admission of other emails leaves it the room that it needs. The zero
// value is ready to use; the budget's mutex guards it.
type reservations struct {
	holder *candidate
	last   uuid.UUID // the company of the last email that was admitted with a reservation
	used   time.Time // when that was
	// refused has the emails that were not admitted at their last try, by company and owner.
	refused map[uuid.UUID]map[uuid.UUID]refusal
	pruned  time.Time
}

// refusal records when an email was first and last refused.
type refusal struct{ since, seen time.Time }

// candidate is an email that needs memory.
type candidate struct {
	company, owner uuid.UUID
	own            *share
	need
	since time.Time // when it was refused first
	away  time.Time // a postponed holder keeps its reservation until then; zero = it waits in its task
}

// ask makes a candidate.
func (r *reservations) ask(company, owner uuid.UUID, own *share, n need, now time.Time) *candidate {
	c := &candidate{company: company, owner: owner, own: own, need: n, since: now}
	if known, ok := r.refused[company][owner]; ok && now.Sub(known.seen) < rememberTime {
		c.since = known.since
	}
	if h := r.current(now); h != nil && !h.away.IsZero() && h.company == company && h.owner == owner {
		r.holder = c // it is back
	}
	return c
}

// current is the email that has the reservation, or nil.
func (r *reservations) current(now time.Time) *candidate {
	if r.holder != nil && !r.holder.away.IsZero() && now.After(r.holder.away) {
		r.holder = nil
	}
	return r.holder
}

// leaveRoom returns the email that an admission of c must leave its room, or nil.
func (r *reservations) leaveRoom(c *candidate, now time.Time) *candidate {
	h := r.current(now)
	switch {
	case h == nil, h == c:
		return nil
	case h.company == r.last && h.company != c.company && now.Sub(r.used) < starvedAfter:
		return nil
	}
	return h
}

// take gives the reservation to a starved email if it is free, or if the email comes before the one that has it.
func (r *reservations) take(c *candidate, now time.Time) (taken bool) {
	if now.Sub(c.since) < starvedAfter {
		return false
	}
	if h := r.current(now); h != nil && !r.before(c, h) {
		return false
	}
	r.holder = c
	return true
}

func (r *reservations) before(c, holder *candidate) bool {
	if again := c.company == r.last; again != (holder.company == r.last) {
		return !again
	}
	return c.since.Before(holder.since)
}

// admitted forgets an email, which may have the reservation.
func (r *reservations) admitted(c *candidate, now time.Time) {
	if r.holder == c {
		r.holder, r.last, r.used = nil, c.company, now
	}
	delete(r.refused[c.company], c.owner)
	if len(r.refused[c.company]) == 0 {
		delete(r.refused, c.company)
	}
}

// refuse records the refusal of an email, and removes those that were not retried.
func (r *reservations) refuse(c *candidate, now time.Time) {
	if now.Sub(r.pruned) > rememberTime {
		r.pruned = now
		for company, emails := range r.refused {
			for owner, known := range emails {
				if now.Sub(known.seen) >= rememberTime {
					delete(emails, owner)
				}
			}
			if len(emails) == 0 {
				delete(r.refused, company)
			}
		}
	}
	emails := r.refused[c.company]
	if emails == nil {
		if r.refused == nil {
			r.refused = map[uuid.UUID]map[uuid.UUID]refusal{}
		}
		emails = map[uuid.UUID]refusal{}
		r.refused[c.company] = emails
	}
	if _, known := emails[c.owner]; known || len(emails) < rememberedEmails {
		emails[c.owner] = refusal{since: c.since, seen: now}
	}
}
