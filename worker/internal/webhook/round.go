package webhook

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"

	"email-gateway/shared/crashpoint"
	"email-gateway/shared/standardwebhook"
	webhookstore "email-gateway/shared/store/webhook"
)

// retryDue attempts deliveries that have rows. Failed attempts before the scheduled time do not count: an endpoint that
// is up and down in turn, or throttles, would use up all attempts of its deliveries within minutes.
func (s *server) retryDue(ctx context.Context, r webhookstore.Round, secrets []standardwebhook.Secret) (more bool, err error) {
	items, missing, err := s.itemsOf(ctx, r)
	if err != nil {
		return false, err
	}
	b := s.newBatch(ctx, r, secrets, items)
	b.run()
	crashpoint.At(crashpoint.WebhookAnswered)
	record := b.tally
	record.Attempted = missing
	r.Open -= len(missing)
	touched := len(missing) > 0
	for i, it := range items {
		o := b.results[i].outcome
		switch b.results[i].state {
		case delivered:
			record.Attempted = append(record.Attempted, webhookstore.Attempted{Delivery: attempted(*it.row, webhookstore.Delivered, o)})
			r.Open--
		case failed:
			after := s.again(r, *it.row, o)
			if after.Status == webhookstore.Failed {
				r.Open--
			}
			record.Attempted = append(record.Attempted, after)
		case untouched, behind:
			continue
		}
		touched = true
	}
	return s.record(ctx, record, touched && ctx.Err() == nil)
}

// again returns a delivery after a failed attempt.
func (s *server) again(r webhookstore.Round, d webhookstore.Delivery, o Outcome) webhookstore.Attempted {
	if mustGiveUp(r, d, o) {
		s.p.Metrics.exhausted.Inc()
		return webhookstore.Attempted{Delivery: attempted(d, webhookstore.Failed, o)}
	}
	again := webhookstore.Attempted{Delivery: attempted(d, webhookstore.Retrying, o), RetryAfter: o.RetryAfter, Throttled: o.Throttled()}
	if d.ScheduledAt != nil {
		again.Attempts = d.Attempts
		return again
	}
	wait, last := s.schedule.after(again.Attempts)
	if last || d.IsTest() {
		s.p.Metrics.exhausted.Inc()
		return webhookstore.Attempted{Delivery: attempted(d, webhookstore.Failed, o)}
	}
	again.Wait = wait
	return again
}

// mustGiveUp reports whether a refused attempt is the last one: open deliveries have stopped the cursor, and the
// endpoint has accepted others since the delivery was created. An attempt before the scheduled time does not count.
func mustGiveUp(r webhookstore.Round, d webhookstore.Delivery, o Outcome) bool {
	return o.Refused() && d.ScheduledAt == nil && r.Open >= webhookstore.MaxOpen && r.LastSuccessAt != nil && r.LastSuccessAt.After(d.CreatedAt)
}

func attempted(d webhookstore.Delivery, status webhookstore.DeliveryStatus, o Outcome) webhookstore.Delivery {
	took := int(o.Took.Milliseconds())
	d.Status, d.LastStatus, d.LastError, d.LastTookMS = status, &o.Status, &o.Code, &took
	d.Attempts++
	return d
}

// page attempts the next new events, and moves the cursor past the events that are delivered or have a row. If the
// endpoint is down, the first failed attempt is the last one. If there is no event that may be attempted, page probes the
// endpoint with an open delivery: one that the endpoint refuses would otherwise be repeated while new events wait.
func (s *server) page(ctx context.Context, r webhookstore.Round, secrets []standardwebhook.Secret) (more bool, err error) {
	var p webhookstore.EventPage
	if r.NewDue && r.Open < webhookstore.MaxOpen {
		if p, err = s.store.Read(ctx, r.CompanyID, r.Cursor, r.Types, pageSize); err != nil {
			return false, err
		}
	}
	if !p.Next.Behind(r.Cursor) {
		if r.Due = r.Probe; len(r.Due) == 0 {
			return false, nil
		}
		return s.retryDue(ctx, r, secrets)
	}
	crashpoint.At(crashpoint.WebhookRead)
	if p.Skipped {
		s.p.Metrics.skipped.Inc()
		s.p.Log.Warn("webhook endpoint has missed events: its cursor was older than the oldest event that is kept",
			"webhookId", r.ID, "companyId", r.CompanyID)
	}
	record, handled := s.deliver(ctx, r, secrets, p, false)
	record.Cursor = handled
	return s.record(ctx, record, handled.Behind(r.Cursor) && ctx.Err() == nil)
}

// replay attempts the next events of a replay.
func (s *server) replay(ctx context.Context, r webhookstore.Round, secrets []standardwebhook.Secret) (more bool, err error) {
	if r.Replay.Since == nil {
		if _, err := s.store.ReplayFailed(ctx, s.lease, *r.Replay, pageSize); err != nil {
			return false, err
		}
		return true, nil
	}
	p, err := s.store.Read(ctx, r.CompanyID, r.Replay.Cursor, r.Types, pageSize)
	if err != nil {
		return false, err
	}
	p, finished := within(p, *r.Replay)
	record, handled := s.deliver(ctx, r, secrets, p, true)
	done := 0
	for _, e := range p.Events {
		if !e.Behind(handled) {
			done++
		}
	}
	record.Replay = &webhookstore.ReplayProgress{ID: r.Replay.ID, Cursor: handled, Done: done, Finished: finished && handled == p.Next}
	return s.record(ctx, record, ctx.Err() == nil && (handled.Behind(r.Replay.Cursor) || record.Replay.Finished))
}

// within returns the events of a page that belong to a replay. finished means that no later event belongs to it.
func within(p webhookstore.EventPage, r webhookstore.Replay) (rest webhookstore.EventPage, finished bool) {
	rest = webhookstore.EventPage{Next: p.Next}
	for _, e := range p.Events {
		if e.Position <= r.LastPosition && !e.At.Before(*r.Since) && e.At.Before(*r.Until) {
			rest.Events = append(rest.Events, e)
		}
	}
	return rest, r.Ends(p.Next) || !p.Next.Behind(r.Cursor)
}

// deliver attempts a page of events. Every event up to the cursor handled is delivered or has a row. An event that was
// not attempted gets one if a later event was: otherwise the later event would be sent again. again means that the
// events may have rows of failed deliveries.
func (s *server) deliver(ctx context.Context, r webhookstore.Round, secrets []standardwebhook.Secret, p webhookstore.EventPage, again bool) (record webhookstore.Result, handled webhookstore.Cursor) {
	items := make([]item, len(p.Events))
	for i, e := range p.Events {
		items[i] = item{event: e}
	}
	b := s.newBatch(ctx, r, secrets, items)
	for _, email := range r.OpenEmails {
		b.blocked[email] = true
	}
	b.run()
	crashpoint.At(crashpoint.WebhookAnswered)
	record, handled = b.tally, p.Next
	events := p.Events
	for len(events) > 0 && b.results[len(events)-1].state == untouched {
		handled = before(events[len(events)-1])
		events = events[:len(events)-1]
	}
	open := map[uuid.UUID]bool{}
	for i, e := range events {
		d := webhookstore.Delivery{EventID: e.ID, Type: e.Type, Position: e.Position, EmailID: &e.EmailID}
		switch b.results[i].state {
		case failed:
			record.New = append(record.New, s.again(r, d, b.results[i].outcome))
			open[e.EmailID] = true
		case untouched, behind:
			d.Status = webhookstore.Waiting
			if b.results[i].state == untouched && !open[e.EmailID] {
				d.Status, open[e.EmailID] = webhookstore.Retrying, true
			}
			record.New = append(record.New, webhookstore.Attempted{Delivery: d})
		case delivered:
			if again {
				record.Delivered = append(record.Delivered, attempted(d, webhookstore.Delivered, b.results[i].outcome))
			}
		}
	}
	return record, handled
}

// record commits the result of a round, unless this process has no connectivity. It returns more, or false if the endpoint was
// disabled or gets a pause.
func (s *server) record(ctx context.Context, r webhookstore.Result, more bool) (bool, error) {
	if err := s.checkConnectivity(ctx, r); err != nil {
		return false, err
	}
	r.ProbeAfter = s.p.ProbeAfter
	after, err := s.store.Record(ctx, s.lease, r, s.p.DisableAfter)
	if err != nil {
		return false, err
	}
	crashpoint.At(crashpoint.WebhookRecorded)
	if after.DisabledNow {
		s.p.Metrics.disabled.WithLabelValues(string(*after.DisabledReason)).Inc()
		s.p.Log.Warn("webhook endpoint disabled", "webhookId", after.ID, "companyId", after.CompanyID, "reason", string(*after.DisabledReason))
	}
	return more && !after.DisabledNow && r.RetryAfter == 0 && !r.Throttled, s.fault
}

// itemsOf reads the events of the due deliveries. missing are the deliveries whose event is no longer stored.
func (s *server) itemsOf(ctx context.Context, r webhookstore.Round) (items []item, missing []webhookstore.Attempted, err error) {
	var ids []string
	for _, d := range r.Due {
		if !d.IsTest() {
			ids = append(ids, d.EventID)
		}
	}
	events := map[string]Event{}
	if len(ids) > 0 {
		if events, err = s.store.FindEvents(ctx, r.CompanyID, ids); err != nil {
			return nil, nil, fmt.Errorf("read events of webhook deliveries: %w", err)
		}
	}
	for _, d := range r.Due {
		e, found := events[d.EventID]
		switch {
		case d.IsTest():
			e = testEvent(d, time.Now())
		case !found:
			missing = append(missing, webhookstore.Attempted{Delivery: attempted(d, webhookstore.Failed, Outcome{Code: CodeEventGone})})
			s.p.Metrics.skipped.Inc()
			continue
		}
		items = append(items, item{event: e, row: &d})
	}
	return items, missing, nil
}

// before returns the cursor right before an event.
func before(e Event) webhookstore.Cursor {
	return webhookstore.Cursor{Position: e.Position, Number: e.Number - 1}
}
