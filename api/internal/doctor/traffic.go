package doctor

import (
	"context"
	"fmt"
	"slices"
	"time"

	"email-gateway/shared/email"
	"email-gateway/shared/store/dispatch"
	"email-gateway/shared/store/lane"
)

const (
	// stalledAge is the age from which a paused or failed mailing may have been forgotten.
	stalledAge = 14 * 24 * time.Hour
	// heldLimit limits how many lanes are read, backlogLimit how far rows are counted.
	heldLimit, backlogLimit = 1000, 100_000
	// An email of another company delays a single email by at most about 2 s. A company's own emails wait for each other, which
	// may take hours: that is no failure while the queue was served within servedWithin.
	waitsLong, waitsTooLong, servedWithin = 30 * time.Second, 5 * time.Minute, 2 * time.Minute
)

// circuitBreaker checks the circuit breaker of the provider.
func (x *examination) circuitBreaker(ctx context.Context) {
	const check = "breaker"
	b, err := x.Store.Breaker(ctx)
	switch {
	case x.couldNot(check, err):
	case b.HeldAt == nil && !b.IsOpen:
		x.add(check, OK, "", "The circuit breaker of the provider is closed; it has opened %d times.", b.Openings)
	}
	if b.HeldAt != nil {
		x.add(check, Warning, "If the reason no longer applies: gatewayctl lane resume --all", "An operator has paused all sending since %s: %s.", when(*b.HeldAt), text(b.HeldReason))
	}
	if b.IsOpen {
		advice := "Check SES's account, credentials and quota. A probe email is sent every 5 s; sending resumes when SES accepts one."
		if b.HeldAt != nil {
			advice = "Check SES's account, credentials and quota. No probe email is sent while sending is paused."
		}
		x.add(check, Failure, advice, "The circuit breaker of the provider has been open since %s: %s.", when(b.Since), text(b.Reason))
	}
	x.stopped = b.HeldAt != nil || b.IsOpen
}

// lanes looks for lanes that operators paused and may have forgotten.
func (x *examination) lanes(ctx context.Context) {
	const check = "lanes"
	lanes, err := x.Store.Lanes(ctx, lane.Filter{NotOpen: true}, heldLimit)
	if x.couldNot(check, err) {
		return
	}
	var oldest *lane.Lane
	held := 0
	for i, l := range lanes {
		if l.HeldAt == nil {
			continue
		}
		held++
		if oldest == nil || l.HeldAt.Before(*oldest.HeldAt) {
			oldest = &lanes[i]
		}
	}
	if oldest == nil {
		x.add(check, OK, "", "No lane is paused by an operator.")
		return
	}
	x.add(check, Warning, "See gatewayctl lane list. If the reason no longer applies: gatewayctl lane resume --company …",
		"%s paused by operators, the first one of %s since %s: %s.", counted(held, "lane is", "lanes are"), oldest.Company, when(*oldest.HeldAt), text(oldest.HeldReason))
}

// mailings looks for mailings that failed or were paused and may have been forgotten: their data is kept until they end.
func (x *examination) mailings(ctx context.Context) {
	const check = "mailings"
	stalled, err := x.Store.StalledMailings(ctx, stalledAge, heldLimit)
	if x.couldNot(check, err) || len(stalled) == 0 {
		return
	}
	var names []string
	for _, m := range stalled {
		names = append(names, m.ID.String()+" of "+m.Company+" (since "+when(m.Since)+")")
	}
	x.add(check, Warning, "Ask the company to resume or cancel them, or cancel one: gatewayctl company cancel-mailing ID --reason …",
		"Paused, failed, or of a company whose mailings are held, for more than two weeks; their data and the logs of their months are kept until they end: %s.", some(names))
}

// waiting looks for emails and jobs that are due but not processed. While sending is stopped, which circuitBreaker reports,
// emails wait for that.
func (x *examination) waiting(ctx context.Context) {
	const check = "waiting"
	ages, err := x.Store.OldestDue(ctx)
	if x.couldNot(check, err) {
		return
	}
	served, err := x.Store.ServedQueues(ctx, servedWithin)
	if x.couldNot(check, err) {
		return
	}
	var blocked, backlog, mailings dispatch.LaneAge
	for _, a := range ages {
		oldest := &blocked
		switch isEmail := slices.Contains(email.Queues(), a.Queue); {
		case isEmail && x.stopped:
			continue
		case a.Mailing:
			oldest = &mailings
		case !isEmail || slices.Contains(served, a.Queue): // another check shows whether RabbitMQ can be reached, but not whether it confirms jobs
			oldest = &backlog
		}
		if a.Seconds > oldest.Seconds {
			*oldest = a
		}
	}
	const advice = "See gatewayctl email explain. Check that a dispatcher is running and that the workers (WORKER_CONCURRENCY) and SES's rate are sufficient."
	switch age := blocked.Age(); {
	case age >= waitsTooLong:
		x.add(check, Failure, advice, "Emails on %s have been due for %s, and nothing blocks them.", blocked.Queue, age.Round(time.Second))
	case age >= waitsLong:
		x.add(check, Warning, advice, "Emails on %s have been due for %s, and nothing blocks them.", blocked.Queue, age.Round(time.Second))
	case backlog.Age() >= waitsTooLong:
		x.add(check, Warning, "If companies do not send or import more than usual, check that the workers (WORKER_CONCURRENCY) and SES's rate are sufficient. For mailings and recipients, check too that RabbitMQ accepts messages: rabbitmq-diagnostics alarms.",
			"The oldest due row of %s has waited for %s: more is due than is processed.", backlog.Queue, backlog.Age().Round(time.Second))
	case x.stopped:
		x.add(check, OK, "", "Emails wait until sending resumes.")
	case mailings.Seconds > 0:
		x.add(check, OK, "", "Only emails of mailings are waiting for their turn, the oldest for %s.", mailings.Age().Round(time.Second))
	default:
		x.add(check, OK, "", "No email has been due for long.")
	}
}

// backlog counts dead letters and unknown outcomes.
func (x *examination) backlog(ctx context.Context) {
	const check = "deadLetters"
	b, err := x.Store.CountBacklog(ctx, backlogLimit)
	if x.couldNot(check, err) {
		return
	}
	if b.DeadLetters > 0 {
		x.add(check, Warning, "See gatewayctl dlq list, then gatewayctl dlq retry or gatewayctl dlq discard. Dead letters are kept for 7 days, those of mailings and recipients for 30.",
			"%s open.", counted(b.DeadLetters, "dead letter is", "dead letters are"))
	} else {
		x.add(check, OK, "", "No dead letter is open.")
	}
	if b.Unknown > 0 {
		x.add("outcomes", Warning, "No action needed: SES's delivery events or the email's delivery mode resolve them. A high number means that connections to SES are being cut.",
			"The outcome of %s is unknown: SES may have accepted them.", counted(b.Unknown, "email", "emails"))
	}
}

// counted formats a number, capped at backlogLimit, with its noun.
func counted(n int, one, many string) string {
	switch {
	case n >= backlogLimit:
		return fmt.Sprintf("%d or more %s", n, many)
	case n == 1:
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// api queries the api's health.
func (x *examination) api(ctx context.Context) {
	const check = "api"
	if x.Health == nil {
		x.add(check, Skipped, "Set API_URL to have it checked.", "The address of the api is not known: neither API_URL nor API_ADDR is set.")
		return
	}
	h, err := x.Health(ctx)
	x.health = h
	switch {
	case err != nil:
		x.add(check, Failure, "Check that the api is running and that API_URL is right. Without it no email is accepted; accepted emails are still sent.", "The api does not answer: %v", err)
	case h.Status == "ok":
		x.add(check, OK, "", "The api is healthy.")
	case h.Database.Status == "unreplicated":
		x.add(check, Failure, "See replication above.", "The api answers but no synchronous standby confirms its commits: no email is accepted.")
	case h.Database.Status == "not_migrated":
		x.add(check, Failure, "Run `migrate up`, then `migrate roles`; check the api's DATABASE_URL.", "The api answers but its database has no tables: no email is accepted.")
	case h.Database.Status != "connected":
		x.add(check, Failure, "See database above; if nothing is wrong with it, check the api's DATABASE_URL.", "The api answers but cannot reach the database, or the database accepts no writes: no email is accepted.")
	default:
		x.add(check, Warning, "See the other findings.", "The api answers but reports %s: emails are accepted, and sent once the missing component is back.", h.Status)
	}
}

func when(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05Z") }

func text(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// some lists the first five of many names.
func some(names []string) string {
	const few = 5
	if len(names) <= few {
		return join(names)
	}
	return fmt.Sprintf("%s and %d more", join(names[:few]), len(names)-few)
}
