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
	"email-gateway/shared/email/emailtest"
	"email-gateway/shared/store"
	"email-gateway/shared/store/feedback"
	"email-gateway/shared/store/outbox"
	"email-gateway/shared/store/storetest"
)

// emailModel is one email with its expected state and the attempts it has had.
type emailModel struct {
	d       storetest.Database
	company uuid.UUID
	id      uuid.UUID

	status email.Status
	tokens []uuid.UUID // of all claims that were won, the newest last
	last   email.EventType
	events int
	bulk   bool // of a mailing
	over   bool // its deadline has passed
	ahead  bool // it is not due yet
	lapsed bool // the lease of its claim has ended

	attempts int

	unknown, duplicate bool // expected columns of its row
}

// For any sequence of operations on an email: a transition is applied exactly when its guard holds, the timeline is a path of
// the diagram, and the row's columns agree with its status and its log.
func TestEmail_RandomTransitions(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	rapid.Check(t, func(rt *rapid.T) {
		company := d.Company(t)
		m := &emailModel{d: d, company: company, status: email.Pending}
		m.id = d.Accept(t, company, func(e *outbox.NewEmail) {
			if rapid.Bool().Draw(rt, "scheduled") {
				e.SendAt, m.ahead = time.Now().Add(time.Hour), true
			}
		})
		if m.bulk = rapid.Bool().Draw(rt, "of a mailing"); m.bulk {
			storetest.OfMailing(t, d, company, m.id)
		}
		someToken := func() uuid.UUID {
			return rapid.SampledFrom(append([]uuid.UUID{uuid.New()}, m.tokens...)).Draw(rt, "token")
		}
		current := func() uuid.UUID {
			if len(m.tokens) == 0 {
				return uuid.New()
			}
			return m.tokens[len(m.tokens)-1]
		}
		rt.Repeat(map[string]func(*rapid.T){
			"claim": func(*rapid.T) {
				token := uuid.New()
				if m.advance(rt, firstClaimOf(company, m.id, token), m.status.Claimable() && !m.over && !m.ahead) {
					m.tokens, m.lapsed = append(m.tokens, token), false
				}
			},
			"refuse":     func(*rapid.T) { m.advance(rt, refusalOf(m.id), m.status.Claimable() && !m.over && !m.ahead) },
			"sent":       func(*rapid.T) { m.end(rt, storetest.SentOf(m.id, current())) },
			"failed":     func(*rapid.T) { m.end(rt, storetest.FailedOf(m.id, current())) },
			"retry":      func(*rapid.T) { m.end(rt, retryOf(m.id, current(), 0)) },
			"released":   func(*rapid.T) { m.end(rt, releaseOf(m.id, current())) },
			"unknown":    func(*rapid.T) { m.end(rt, unknownOf(m.id, current(), outbox.GuardAttempt)) },
			"lease ends": func(*rapid.T) { m.endLease(t) },
			"abandoned": func(*rapid.T) {
				token := someToken()
				m.advance(rt, unknownOf(m.id, token, outbox.GuardAbandoned), m.status == email.Processing && m.lapsed && token == current())
			},
			"unresolved": func(*rapid.T) {
				token := someToken()
				resolution := rapid.SampledFrom([]func(id, token uuid.UUID) outbox.Transition{storetest.FailedOf, duplicateOf}).Draw(rt, "resolution")(m.id, token)
				resolution.Guard = outbox.GuardUnresolved
				m.advance(rt, resolution, m.status == email.OutcomeUnknown && token == current())
			},
			"feedback": func(*rapid.T) { m.feedback(rt, someToken()) },
			"late result": func(*rapid.T) {
				make := rapid.SampledFrom([]func(id, token uuid.UUID) outbox.Transition{storetest.SentOf, storetest.FailedOf, releaseOf}).Draw(rt, "result")
				m.end(rt, make(m.id, someToken()))
			},
			"cancel":     func(*rapid.T) { m.advance(rt, storetest.CancelOf(m.id), m.status.Claimable()) },
			"suppress":   func(*rapid.T) { m.advance(rt, suppressOf(m.id), m.status.Claimable()) },
			"expire":     func(*rapid.T) { m.advance(rt, expireOf(m.id), m.status.Claimable() && m.over) },
			"replay":     func(*rapid.T) { m.advance(rt, storetest.ReplayOf(m.id), m.status.Replayable()) },
			"reschedule": func(*rapid.T) { m.reschedule(rt) },
			"its time comes": func(*rapid.T) {
				run(t, d, `UPDATE email_outbox SET next_at = least(next_at, now()) WHERE id = $1`, m.id)
				run(t, d, `UPDATE email_logs SET send_at = least(send_at, now()) WHERE outbox_id = $1`, m.id)
				m.ahead = false
			},
			"time passes": func(*rapid.T) {
				if m.noDeadline() && m.status.Claimable() {
					return // ten years do not pass
				}
				run(t, d, `UPDATE email_outbox SET expires_at = now() WHERE id = $1`, m.id)
				m.over = true
			},
			"dispatch": func(*rapid.T) {
				if m.status == email.Pending {
					run(t, d, `UPDATE email_outbox SET status = 'ENQUEUED', enqueued_at = now() WHERE id = $1`, m.id)
					m.status = email.Enqueued
				}
			},
			"give back": func(*rapid.T) {
				if locked, err := d.Store.DropTask(t.Context(), m.id, 0); err != nil || locked {
					rt.Fatal(locked, err)
				}
				if m.status == email.Enqueued {
					m.status = email.Pending
				}
			},
			"nonsense": func(*rapid.T) { m.nonsense(rt) },
			"":         func(*rapid.T) { m.check(rt) },
		})
	})
}

// end reports the outcome of an attempt. It is applied if the attempt is the current one; an acceptance is always applied,
// unless there was one before.
func (m *emailModel) end(rt *rapid.T, t outbox.Transition) {
	made := slices.Contains(m.tokens, t.Token)
	own := made && t.Token == m.tokens[len(m.tokens)-1]
	// A worker whose attempt was declared unknown may still report the known result.
	late := m.status == email.OutcomeUnknown && (t.Status == email.Failed || t.Status == email.RetryScheduled) && !t.OutcomeUnknown
	holds := own && (m.status == email.Processing || late)
	if t.Status == email.Sent && !made && m.status != email.Processing {
		return // SES accepts no attempt that was never made
	}
	m.advance(rt, t, holds || t.Status == email.Sent && m.status != email.Sent)
}

// advance applies a transition, which must be applied exactly when want is true.
func (m *emailModel) advance(rt *rapid.T, t outbox.Transition, want bool) bool {
	got, err := m.d.Store.Advance(rt.Context(), t)
	if err != nil || got.Applied != want {
		rt.Fatalf("%s to %s from %s behind %s: %+v, %v", t.Guard, t.Status, m.status, m.last, got, err)
	}
	if got.Applied {
		// Another attempt, in flight or of unknown outcome, may be accepted too.
		another := t.Status == email.Sent && (m.status == email.Processing || m.status == email.OutcomeUnknown) && t.Token != m.tokens[len(m.tokens)-1]
		m.duplicate = m.duplicate || another || t.PossibleDuplicate || t.Guard == outbox.GuardReplay && m.unknown
		m.unknown = m.unknown || t.OutcomeUnknown
		m.ahead = m.ahead && (t.Status.Final() || t.Guard == outbox.GuardReplay) // other transitions make it due
		m.attempts += t.AddAttempts
		if t.Guard == outbox.GuardReplay {
			m.attempts, m.over = 0, false
		}
		if m.noDeadline() && !t.Status.Final() {
			m.over = false
		}
		m.status, m.last, m.events = t.Status, t.Events[len(t.Events)-1].Type, m.events+len(t.Events)
	}
	if got.Status != m.status {
		rt.Fatalf("Advance returned the status %s, want %s", got.Status, m.status)
	}
	return got.Applied
}

// noDeadline reports whether it is an email of a mailing before its first attempt.
func (m *emailModel) noDeadline() bool { return m.bulk && m.attempts == 0 }

// reschedule moves it to now or ahead, if no worker has it. Now is no event if it is due.
func (m *emailModel) reschedule(rt *rapid.T) {
	var at time.Time
	ahead := rapid.Bool().Draw(rt, "ahead")
	if ahead {
		at = time.Now().Add(time.Duration(1+rapid.IntRange(0, 9).Draw(rt, "hours")) * time.Hour)
	}
	got, err := m.d.Store.Reschedule(rt.Context(), moveOf(m.company, m.id, at, 24*time.Hour))
	if err != nil || got.Applied != m.status.Claimable() {
		rt.Fatalf("moved from %s: %+v, %v", m.status, got, err)
	}
	if got.Applied {
		if ahead || m.ahead {
			m.last, m.events = email.EventRescheduled, m.events+1
		}
		m.status, m.ahead, m.over = email.Pending, ahead, false
	}
}

// endLease ends the lease of the claim that there is.
func (m *emailModel) endLease(t *testing.T) {
	run(t, m.d, `UPDATE email_outbox SET lease_until = now() - interval '1 s' WHERE id = $1 AND lease_until IS NOT NULL`, m.id)
	m.lapsed = true
}

// feedback records an SES event of an attempt. It proves that the attempt was accepted, whatever the email's status, also if no
// row has the attempt: the claim may be lost after the promotion of a standby.
func (m *emailModel) feedback(rt *rapid.T, token uuid.UUID) {
	kind := rapid.SampledFrom([]email.EventType{"", email.EventDelivered, email.EventOpened}).Draw(rt, "kind")
	got, err := m.d.Store.RecordFeedback(rt.Context(), deliveryReport(m.company, m.id, token, func(f *feedback.Feedback) { f.Event = kind }))
	if err != nil || got.Unmatched {
		rt.Fatalf("feedback: %+v, %v", got, err)
	}
	was := m.duplicate
	m.status = email.Sent
	err = m.d.SQL.QueryRowContext(rt.Context(), `
		SELECT l.last_event, l.event_seq, o.outcome_unknown, o.possible_duplicate
		FROM email_logs l JOIN email_outbox o ON o.id = l.outbox_id WHERE o.id = $1`, m.id).Scan(&m.last, &m.events, &m.unknown, &m.duplicate)
	if err != nil || m.unknown || was && !m.duplicate {
		rt.Fatalf("behind feedback: unknown %v, possible duplicate %v, before %v; %v", m.unknown, m.duplicate, was, err)
	}
}

// nonsense tries any events in any order. The database accepts exactly the paths of the diagram.
func (m *emailModel) nonsense(rt *rapid.T) {
	if !m.status.Claimable() {
		return
	}
	types := rapid.SliceOfN(rapid.SampledFrom(email.EventTypes()), 1, 3).Draw(rt, "types")
	t := storetest.CancelOf(m.id)
	t.Events = nil
	legal, previous := true, m.last
	for _, kind := range types {
		t.Events = append(t.Events, storetest.Event(kind, nil))
		legal = legal && emailtest.MayFollow(previous, kind)
		previous = kind
	}
	switch {
	case legal && previous == email.EventCancelled:
		m.advance(rt, t, true)
		return
	case legal: // an end that does not fit the status is no program's
		return
	}
	if got, err := m.d.Store.Advance(rt.Context(), t); err == nil {
		rt.Fatalf("%v behind %q: %+v", types, m.last, got)
	}
}

func (m *emailModel) check(rt *rapid.T) {
	var row struct {
		status                         email.Status
		final, leased                  bool
		unknown, duplicate             bool
		behind, none                   bool // the deadline is behind the time that the email is due; there is none
		attempts, throttles            int
		logStatus, logLast, path       sql.NullString
		logSeq, events, open, openDead sql.NullInt64
	}
	err := m.d.SQL.QueryRowContext(rt.Context(), `
		SELECT o.status, o.processed_at IS NOT NULL, o.lease_until IS NOT NULL, o.outcome_unknown, o.possible_duplicate,
		       o.expires_at > o.next_at, o.expires_at > now() + interval '9 years', o.attempts, o.throttles, l.status, l.last_event, l.event_seq,
		       (SELECT count(*) FROM email_events WHERE email_log_id = o.id AND seq BETWEEN 1 AND l.event_seq),
		       (SELECT string_agg(coalesce(previous, '') || '>' || type, ' ' ORDER BY seq) FROM email_events WHERE email_log_id = o.id),
		       (SELECT count(*) FROM dead_letters WHERE outbox_id = o.id AND resolved_at IS NULL)
		FROM email_outbox o LEFT JOIN email_logs l ON l.outbox_id = o.id WHERE o.id = $1`, m.id).Scan(
		&row.status, &row.final, &row.leased, &row.unknown, &row.duplicate, &row.behind, &row.none, &row.attempts, &row.throttles, &row.logStatus, &row.logLast, &row.logSeq, &row.events, &row.path, &row.openDead)
	if err != nil {
		rt.Fatal(err)
	}
	if row.status != m.status || row.final != m.status.Final() || row.leased != (m.status == email.Processing) {
		rt.Fatalf("%+v, want %s", row, m.status)
	}
	if m.status.Claimable() && !m.over && (!row.behind || row.none != m.noDeadline()) {
		rt.Fatalf("%s after %d attempts, of a mailing: %v: the deadline is behind the due time: %v, there is none: %v", m.status, m.attempts, m.bulk, row.behind, row.none)
	}
	if row.unknown != m.unknown || row.duplicate != m.duplicate {
		rt.Fatalf("%+v, want unknown %v and possible duplicate %v", row, m.unknown, m.duplicate)
	}
	if int(row.logSeq.Int64) != m.events || row.events.Int64 != row.logSeq.Int64 || row.logLast.String != string(m.last) {
		rt.Fatalf("%+v, want %d events and %s last", row, m.events, m.last)
	}
	// The dispatcher's steps write no event; everything else writes the log too.
	if at := email.Status(row.logStatus.String); m.events > 0 && at != m.status && m.status != email.Enqueued && m.status != email.Pending {
		rt.Fatalf("log %s, email %s", at, m.status)
	}
	if m.status == email.Failed && row.openDead.Int64 != 1 || m.status == email.Sent && row.openDead.Int64 != 0 {
		rt.Fatalf("%s with %d open dead letters", m.status, row.openDead.Int64)
	}
	previous := email.EventType("")
	for step := range strings.FieldsSeq(row.path.String) {
		before, kind, _ := strings.Cut(step, ">")
		if email.EventType(before) != previous || !emailtest.MayFollow(previous, email.EventType(kind)) {
			rt.Fatalf("not a path: %s", row.path.String)
		}
		previous = email.EventType(kind)
	}
}

// The same operations run concurrently: the timeline is a path of the diagram and the email's columns agree with it.
func TestEmail_RandomTransitions_Concurrent(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	advancers := []*outbox.Advancer{d.Store.NewAdvancer(), open(t, d.URL, store.Options{}).NewAdvancer()}
	rapid.Check(t, func(rt *rapid.T) {
		m := &emailModel{d: d, company: company, id: d.Accept(t, company, nil)}
		seed := rapid.Uint64().Draw(rt, "seed")
		done := make(chan error)
		const sides = 8
		for side := range sides {
			go func() {
				var token uuid.UUID
				var err error
				for step := range 6 {
					t := storetest.CancelOf(m.id)
					switch (seed>>(side*3) + uint64(step)) % 9 {
					case 0, 1:
						t = storetest.ClaimOf(company, m.id, uuid.New(), "C")
					case 2:
						t = retryOf(m.id, token, 0)
					case 3:
						t = releaseOf(m.id, token)
					case 4:
						t = storetest.FailedOf(m.id, token)
					case 5:
						t = storetest.ReplayOf(m.id)
					case 6:
						t = unknownOf(m.id, token, outbox.GuardAttempt)
					case 7:
						if token != uuid.Nil { // SES accepts no attempt that was never made
							t = storetest.SentOf(m.id, token)
						}
					}
					var got outbox.Advanced
					if got, err = advancers[side%2].Advance(rt.Context(), t); err != nil {
						break
					}
					if got.Applied && t.Guard == outbox.GuardClaim {
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
		row, err := d.Store.FindEmail(t.Context(), company, m.id)
		if err != nil {
			rt.Fatal(err)
		}
		events, err := d.Store.Timeline(t.Context(), m.id)
		if err != nil {
			rt.Fatal(err)
		}
		m.status, m.events, m.unknown, m.duplicate = row.Status, len(events), row.OutcomeUnknown, row.PossibleDuplicate
		if len(events) > 0 {
			m.last = events[len(events)-1].Type
		}
		m.check(rt)
	})
}
