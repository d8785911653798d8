package doctor

import (
	"context"
	"fmt"
	"time"

	"email-gateway/shared/store"
)

const (
	// heldLimit is how many lanes are looked at, backlogLimit how far is counted.
	heldLimit, backlogLimit = 1000, 100_000
	// An email waits about 2 s at most because of others. Those of mailings wait for each
	// other, which may take hours.
	waitsLong, waitsTooLong = 30 * time.Second, 5 * time.Minute
)

// gate looks at the brake before the provider.
func (x *examination) gate(ctx context.Context) {
	const check = "gate"
	g, err := x.Store.Gate(ctx)
	switch {
	case x.couldNot(check, err):
	case g.HeldAt != nil:
		x.add(check, Warning, "If that is over: gatewayctl lane resume --all", "An operator has held back every email since %s: %s.", when(*g.HeldAt), text(g.HeldReason))
	case g.State == store.GateShut:
		x.add(check, Failure, "Look at SES's account, credentials and quota; sending goes on by itself once SES takes a probe, which is tried every 5 s.",
			"The provider takes no email since %s: %s.", when(g.Since), text(g.Reason))
	default:
		x.add(check, OK, "", "Emails pass to the provider; it was shut %d times so far.", g.Shuts)
	}
}

// lanes looks for what operators have held back and may have forgotten.
func (x *examination) lanes(ctx context.Context) {
	const check = "lanes"
	lanes, err := x.Store.Lanes(ctx, store.LaneFilter{NotOpen: true}, heldLimit)
	if x.couldNot(check, err) {
		return
	}
	var oldest *store.Lane
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
		x.add(check, OK, "", "No lane is held back by an operator.")
		return
	}
	x.add(check, Warning, "If that is over: gatewayctl lane resume --company …; gatewayctl lane list shows them.",
		"%s held back by operators, the first of them %s's since %s: %s.", counted(held, "lane is", "lanes are"), oldest.Company, when(*oldest.HeldAt), text(oldest.HeldReason))
}

// waiting looks for what is due and nobody takes.
func (x *examination) waiting(ctx context.Context) {
	const check = "waiting"
	ages, err := x.Store.OldestDue(ctx)
	if x.couldNot(check, err) {
		return
	}
	var alone, mailings store.LaneAge
	for _, a := range ages {
		oldest := &alone
		if a.Mailing {
			oldest = &mailings
		}
		if a.Seconds > oldest.Seconds {
			*oldest = a
		}
	}
	const advice = "gatewayctl email explain tells of one why. Is a dispatcher running, are the workers enough (WORKER_CONCURRENCY), is SES's rate?"
	switch age := alone.Age(); {
	case age >= waitsTooLong:
		x.add(check, Failure, advice, "On %s something has been due for %s, and nothing holds it back.", alone.Queue, age.Round(time.Second))
	case age >= waitsLong:
		x.add(check, Warning, advice, "On %s something has been due for %s, and nothing holds it back.", alone.Queue, age.Round(time.Second))
	case mailings.Seconds > 0:
		x.add(check, OK, "", "Nothing waits for long but emails of mailings, for each other: the first of them for %s.", mailings.Age().Round(time.Second))
	default:
		x.add(check, OK, "", "Nothing waits for long.")
	}
}

// backlog counts what somebody should look at.
func (x *examination) backlog(ctx context.Context) {
	const check = "deadLetters"
	b, err := x.Store.CountBacklog(ctx, backlogLimit)
	if x.couldNot(check, err) {
		return
	}
	if b.DeadLetters > 0 {
		x.add(check, Warning, "gatewayctl dlq list tells why; gatewayctl dlq retry sends again, gatewayctl dlq discard does not. They are kept for 7 days, those of mailings and recipients for 30.",
			"%s open: what was given up, and nobody has looked at.", counted(b.DeadLetters, "dead letter is", "dead letters are"))
	} else {
		x.add(check, OK, "", "No dead letter is open.")
	}
	if b.Unknown > 0 {
		x.add("outcomes", Warning, "Nothing: SES's feedback, or the email's delivery, decides by itself. Many of them mean that connections to SES are cut.",
			"Of %s nobody knows yet whether SES took them.", counted(b.Unknown, "email", "emails"))
	}
}

// counted is a number that stops at backlogLimit, with its noun.
func counted(n int, one, many string) string {
	switch {
	case n >= backlogLimit:
		return fmt.Sprintf("%d or more %s", n, many)
	case n == 1:
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// api asks it how it is.
func (x *examination) api(ctx context.Context) {
	const check = "api"
	if x.Health == nil {
		x.add(check, Skipped, "Set API_URL to have it checked.", "The address of the api is not known: neither API_URL nor API_ADDR is set.")
		return
	}
	h, err := x.Health(ctx)
	switch {
	case err != nil:
		x.add(check, Failure, "Is it running, and API_URL right? Nothing is accepted without it; what was accepted is sent all the same.", "It does not answer: %v", err)
	case h.Status == "ok":
		x.add(check, OK, "", "It answers, and finds nothing missing.")
	case h.Database.Status == "unreplicated":
		x.add(check, Failure, "See replication above.", "It answers, and no synchronous standby confirms what its database commits: nothing is accepted.")
	case h.Database.Status == "not_migrated":
		x.add(check, Failure, "Run `migrate up`, then `migrate roles`; is DATABASE_URL right where the api runs?", "It answers, and its database has no tables: nothing is accepted.")
	case h.Database.Status != "connected":
		x.add(check, Failure, "Is DATABASE_URL right where the api runs?", "It answers, and does not reach the database: nothing is accepted.")
	default:
		x.add(check, Warning, "The other lines tell what is missing.", "It answers, and calls the whole %s: mail is accepted, and sent when what is missing is back.", h.Status)
	}
}

func when(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05Z") }

func text(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// some are the first few of many names.
func some(names []string) string {
	const few = 5
	if len(names) <= few {
		return join(names)
	}
	return fmt.Sprintf("%s and %d more", join(names[:few]), len(names)-few)
}
