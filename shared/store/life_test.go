package store_test

import (
	"database/sql"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"pgregory.net/rapid"

	"email-gateway/shared/email"
	"email-gateway/shared/store"
	"email-gateway/shared/store/storetest"
)

// life is one email with its expected state and the attempts it has had.
type life struct {
	d       storetest.Database
	company uuid.UUID
	id      uuid.UUID

	status email.Status
	tokens []uuid.UUID // of all claims that were won, the newest last
	last   email.EventType
	events int
	over   bool // its deadline has passed
	ahead  bool // it is not due yet
	lapsed bool // the lease of its claim has ended

	attempts int

	unknown, duplicate bool // expected columns of its row
}

// For any sequence of operations on an email: a transition is applied exactly when its guard holds, the timeline is a path of
// the diagram, and the row's columns agree with its status and its log.
func TestAnyLifeOfAnEmail(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	rapid.Check(t, func(rt *rapid.T) {
		l := &life{d: d, company: company, status: email.Pending}
		l.id = d.Accept(t, company, func(e *store.NewEmail) {
			if rapid.Bool().Draw(rt, "scheduled") {
				e.SendAt, l.ahead = time.Now().Add(time.Hour), true
			}
		})
		someToken := func() uuid.UUID {
			return rapid.SampledFrom(append([]uuid.UUID{uuid.New()}, l.tokens...)).Draw(rt, "token")
		}
		current := func() uuid.UUID {
			if len(l.tokens) == 0 {
				return uuid.New()
			}
			return l.tokens[len(l.tokens)-1]
		}
		rt.Repeat(map[string]func(*rapid.T){
			"claim": func(*rapid.T) {
				token := uuid.New()
				if l.advance(rt, storetest.ClaimOf(company, l.id, token, "C"), l.status.Claimable() && !l.over && !l.ahead) {
					l.tokens, l.lapsed = append(l.tokens, token), false
				}
			},
			"refuse":     func(*rapid.T) { l.advance(rt, refusalOf(l.id), l.status.Claimable() && !l.over && !l.ahead) },
			"sent":       func(*rapid.T) { l.end(rt, storetest.SentOf(l.id, current())) },
			"failed":     func(*rapid.T) { l.end(rt, storetest.FailedOf(l.id, current())) },
			"retry":      func(*rapid.T) { l.end(rt, retryOf(l.id, current(), 0)) },
			"released":   func(*rapid.T) { l.end(rt, releaseOf(l.id, current())) },
			"unknown":    func(*rapid.T) { l.end(rt, unknownOf(l.id, current(), store.GuardAttempt)) },
			"lease ends": func(*rapid.T) { l.lapse(t) },
			"abandoned": func(*rapid.T) {
				token := someToken()
				l.advance(rt, unknownOf(l.id, token, store.GuardAbandoned), l.status == email.Processing && l.lapsed && token == current())
			},
			"unresolved": func(*rapid.T) {
				token := someToken()
				resolution := rapid.SampledFrom([]func(id, token uuid.UUID) store.Transition{storetest.FailedOf, duplicateOf}).Draw(rt, "resolution")(l.id, token)
				resolution.Guard = store.GuardUnresolved
				l.advance(rt, resolution, l.status == email.OutcomeUnknown && token == current())
			},
			"feedback": func(*rapid.T) { l.feedback(rt, someToken()) },
			"late result": func(*rapid.T) {
				make := rapid.SampledFrom([]func(id, token uuid.UUID) store.Transition{storetest.SentOf, storetest.FailedOf, releaseOf}).Draw(rt, "result")
				l.end(rt, make(l.id, someToken()))
			},
			"cancel":   func(*rapid.T) { l.advance(rt, storetest.CancelOf(l.id), l.status.Claimable()) },
			"suppress": func(*rapid.T) { l.advance(rt, suppressOf(l.id), l.status.Claimable()) },
			"expire":   func(*rapid.T) { l.advance(rt, expireOf(l.id), l.status.Claimable() && l.over) },
			"replay": func(*rapid.T) {
				if l.advance(rt, storetest.ReplayOf(l.id), l.status.Replayable()) {
					l.over = false
				}
			},
			"reschedule": func(*rapid.T) { l.reschedule(rt) },
			"its time comes": func(*rapid.T) {
				run(t, d, `UPDATE email_outbox SET next_at = least(next_at, now()) WHERE id = $1`, l.id)
				l.ahead = false
			},
			"time passes": func(*rapid.T) {
				run(t, d, `UPDATE email_outbox SET expires_at = now() WHERE id = $1`, l.id)
				l.over = true
			},
			"dispatch": func(*rapid.T) {
				if l.status == email.Pending {
					run(t, d, `UPDATE email_outbox SET status = 'ENQUEUED', enqueued_at = now() WHERE id = $1`, l.id)
					l.status = email.Enqueued
				}
			},
			"give back": func(*rapid.T) {
				if locked, err := d.Store.DropTask(t.Context(), l.id, 0); err != nil || locked {
					rt.Fatal(locked, err)
				}
				if l.status == email.Enqueued {
					l.status = email.Pending
				}
			},
			"nonsense": func(*rapid.T) { l.nonsense(rt) },
			"":         func(*rapid.T) { l.check(rt) },
		})
	})
}

// end reports the outcome of an attempt. It is applied if the attempt is the current one; an acceptance is always applied,
// unless there was one before.
func (l *life) end(rt *rapid.T, t store.Transition) {
	made := slices.Contains(l.tokens, t.Token)
	own := made && t.Token == l.tokens[len(l.tokens)-1]
	// A worker whose attempt was declared unknown may still report the known result.
	late := l.status == email.OutcomeUnknown && (t.Status == email.Failed || t.Status == email.RetryScheduled) && !t.OutcomeUnknown
	holds := own && (l.status == email.Processing || late)
	if t.Status == email.Sent && !made && l.status != email.Processing {
		return // SES accepts no attempt that was never made
	}
	l.advance(rt, t, holds || t.Status == email.Sent && l.status != email.Sent)
}

// advance applies a transition, which must be applied exactly when want is true.
func (l *life) advance(rt *rapid.T, t store.Transition, want bool) bool {
	got, err := l.d.Store.Advance(rt.Context(), t)
	if err != nil || got.Applied != want {
		rt.Fatalf("%s to %s from %s behind %s: %+v, %v", t.Guard, t.Status, l.status, l.last, got, err)
	}
	if got.Applied {
		l.duplicate = l.duplicate || t.PossibleDuplicate || t.Guard == store.GuardReplay && l.unknown
		l.unknown = l.unknown || t.OutcomeUnknown
		reversed := t.Guard == store.GuardReplay && l.status == email.Cancelled && l.attempts == 0
		l.ahead = l.ahead && (t.Status.Final() || reversed) // other transitions make it due
		l.attempts += t.AddAttempts
		if t.Guard == store.GuardReplay {
			l.attempts = 0
		}
		l.status, l.last, l.events = t.Status, t.Events[len(t.Events)-1].Type, l.events+len(t.Events)
	}
	if got.Status != l.status {
		rt.Fatalf("Advance returned the status %s, want %s", got.Status, l.status)
	}
	return got.Applied
}

// reschedule moves it to now or ahead, if no worker has it. Now is no event if it is due.
func (l *life) reschedule(rt *rapid.T) {
	var at time.Time
	ahead := rapid.Bool().Draw(rt, "ahead")
	if ahead {
		at = time.Now().Add(time.Duration(1+rapid.IntRange(0, 9).Draw(rt, "hours")) * time.Hour)
	}
	got, err := l.d.Store.Reschedule(rt.Context(), moveOf(l.company, l.id, at, 24*time.Hour))
	if err != nil || got.Applied != l.status.Claimable() {
		rt.Fatalf("moved from %s: %+v, %v", l.status, got, err)
	}
	if got.Applied {
		if ahead || l.ahead {
			l.last, l.events = email.EventRescheduled, l.events+1
		}
		l.status, l.ahead, l.over = email.Pending, ahead, false
	}
}

// lapse ends the lease of the claim that there is.
func (l *life) lapse(t *testing.T) {
	run(t, l.d, `UPDATE email_outbox SET lease_until = now() - interval '1 s' WHERE id = $1 AND lease_until IS NOT NULL`, l.id)
	l.lapsed = true
}

// feedback records an SES event of an attempt. An event of an attempt that was made proves that it was accepted, whatever the
// email's status; an event of another attempt changes nothing.
func (l *life) feedback(rt *rapid.T, token uuid.UUID) {
	kind := rapid.SampledFrom([]email.EventType{"", email.EventDelivered, email.EventOpened}).Draw(rt, "kind")
	got, err := l.d.Store.RecordFeedback(rt.Context(), deliveryReport(l.company, l.id, token, func(f *store.Feedback) { f.Event = kind }))
	made := slices.Contains(l.tokens, token)
	if err != nil || got.Unmatched == made {
		rt.Fatalf("feedback on an attempt that was made: %v: %+v, %v", made, got, err)
	}
	if !made {
		return
	}
	was := l.duplicate
	l.status = email.Sent
	err = l.d.SQL.QueryRowContext(rt.Context(), `
		SELECT l.last_event, l.event_seq, o.outcome_unknown, o.possible_duplicate
		FROM email_logs l JOIN email_outbox o ON o.id = l.outbox_id WHERE o.id = $1`, l.id).Scan(&l.last, &l.events, &l.unknown, &l.duplicate)
	if err != nil || l.unknown || was && !l.duplicate {
		rt.Fatalf("behind feedback: unknown %v, possible duplicate %v, before %v; %v", l.unknown, l.duplicate, was, err)
	}
}

// nonsense tries any events in any order. The database accepts exactly the paths of the diagram.
func (l *life) nonsense(rt *rapid.T) {
	if !l.status.Claimable() {
		return
	}
	types := rapid.SliceOfN(rapid.SampledFrom(email.EventTypes()), 1, 3).Draw(rt, "types")
	t := storetest.CancelOf(l.id)
	t.Events = nil
	legal, previous := true, l.last
	for _, kind := range types {
		t.Events = append(t.Events, storetest.Event(kind, nil))
		legal = legal && email.MayFollow(previous, kind)
		previous = kind
	}
	switch {
	case legal && previous == email.EventCancelled:
		l.advance(rt, t, true)
		return
	case legal: // an end that does not fit the status is no program's
		return
	}
	if got, err := l.d.Store.Advance(rt.Context(), t); err == nil {
		rt.Fatalf("%v behind %q: %+v", types, l.last, got)
	}
}

func (l *life) check(rt *rapid.T) {
	var row struct {
		status                         email.Status
		final, leased                  bool
		unknown, duplicate             bool
		attempts, throttles            int
		logStatus, logLast, path       sql.NullString
		logSeq, events, open, openDead sql.NullInt64
	}
	err := l.d.SQL.QueryRowContext(rt.Context(), `
		SELECT o.status, o.processed_at IS NOT NULL, o.lease_until IS NOT NULL, o.outcome_unknown, o.possible_duplicate, o.attempts, o.throttles, l.status, l.last_event, l.event_seq,
		       (SELECT count(*) FROM email_events WHERE email_log_id = o.id AND seq BETWEEN 1 AND l.event_seq),
		       (SELECT string_agg(coalesce(previous, '') || '>' || type, ' ' ORDER BY seq) FROM email_events WHERE email_log_id = o.id),
		       (SELECT count(*) FROM dead_letters WHERE outbox_id = o.id AND resolved_at IS NULL)
		FROM email_outbox o LEFT JOIN email_logs l ON l.outbox_id = o.id WHERE o.id = $1`, l.id).Scan(
		&row.status, &row.final, &row.leased, &row.unknown, &row.duplicate, &row.attempts, &row.throttles, &row.logStatus, &row.logLast, &row.logSeq, &row.events, &row.path, &row.openDead)
	if err != nil {
		rt.Fatal(err)
	}
	if row.status != l.status || row.final != l.status.Final() || row.leased != (l.status == email.Processing) {
		rt.Fatalf("%+v, want %s", row, l.status)
	}
	if row.unknown != l.unknown || row.duplicate != l.duplicate {
		rt.Fatalf("%+v, want unknown %v and possible duplicate %v", row, l.unknown, l.duplicate)
	}
	if int(row.logSeq.Int64) != l.events || row.events.Int64 != row.logSeq.Int64 || row.logLast.String != string(l.last) {
		rt.Fatalf("%+v, want %d events and %s last", row, l.events, l.last)
	}
	// The dispatcher's steps write no event; everything else writes the log too.
	if at := email.Status(row.logStatus.String); l.events > 0 && at != l.status && l.status != email.Enqueued && l.status != email.Pending {
		rt.Fatalf("log %s, email %s", at, l.status)
	}
	if l.status == email.Failed && row.openDead.Int64 != 1 || l.status == email.Sent && row.openDead.Int64 != 0 {
		rt.Fatalf("%s with %d open dead letters", l.status, row.openDead.Int64)
	}
	previous := email.EventType("")
	for step := range strings.FieldsSeq(row.path.String) {
		before, kind, _ := strings.Cut(step, ">")
		if email.EventType(before) != previous || !email.MayFollow(previous, email.EventType(kind)) {
			rt.Fatalf("not a path: %s", row.path.String)
		}
		previous = email.EventType(kind)
	}
}

// The same operations run concurrently: the timeline is a path of the diagram and the email's columns agree with it.
func TestAnyLifeOfAnEmail_FromManySides(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	advancers := []*store.Advancer{d.Store.NewAdvancer(), open(t, d.URL, store.Options{}).NewAdvancer()}
	rapid.Check(t, func(rt *rapid.T) {
		l := &life{d: d, company: company, id: d.Accept(t, company, nil)}
		seed := rapid.Uint64().Draw(rt, "seed")
		done := make(chan error)
		const sides = 8
		for side := range sides {
			go func() {
				var token uuid.UUID
				var err error
				for step := range 6 {
					t := storetest.CancelOf(l.id)
					switch (seed>>(side*3) + uint64(step)) % 9 {
					case 0, 1:
						t = storetest.ClaimOf(company, l.id, uuid.New(), "C")
					case 2:
						t = retryOf(l.id, token, 0)
					case 3:
						t = releaseOf(l.id, token)
					case 4:
						t = storetest.FailedOf(l.id, token)
					case 5:
						t = storetest.ReplayOf(l.id)
					case 6:
						t = unknownOf(l.id, token, store.GuardAttempt)
					case 7:
						if token != uuid.Nil { // SES accepts no attempt that was never made
							t = storetest.SentOf(l.id, token)
						}
					}
					var got store.Advanced
					if got, err = advancers[side%2].Advance(rt.Context(), t); err != nil {
						break
					}
					if got.Applied && t.Guard == store.GuardClaim {
						token = t.Token
					}
				}
				done <- err
			}()
		}
		for range sides {
			if err := <-done; err != nil {
				rt.Error(err)
			}
		}
		row, err := d.Store.FindEmail(t.Context(), company, l.id)
		if err != nil {
			rt.Fatal(err)
		}
		events, err := d.Store.Timeline(t.Context(), l.id)
		if err != nil {
			rt.Fatal(err)
		}
		l.status, l.events, l.unknown, l.duplicate = row.Status, len(events), row.OutcomeUnknown, row.PossibleDuplicate
		if len(events) > 0 {
			l.last = events[len(events)-1].Type
		}
		l.check(rt)
	})
}
