package doctor

import "context"

// Number of sent emails after which an event of SES is overdue: if it reports every email, and if it reports bounces and
// complaints only, of which a well-kept list of recipients has one in some hundred emails.
const (
	overdueOfEach  = 100
	overdueBounces = 2000
)

// eventArrivals compares the events of SES with the emails sent, if the gateway gets events: a lost subscription, a
// wrong topic, or a configuration set without a destination leaves no trace but their absence.
func (x *examination) eventArrivals(ctx context.Context) {
	const check = "sesEvents"
	if version, err := x.Store.SchemaVersion(ctx); err != nil || version < x.Newest {
		return // reported by migrations
	}
	found, err := x.Store.EventArrivals(ctx)
	if x.couldNot(check, err) {
		return
	}
	if found.OnAccountList > 0 {
		x.add(check, Warning, "Turn SES's own suppression off for the configuration set: see SESAccountSuppression in OPERATIONS.md. The gateway has a list for each company.",
			"SES did not send %s of the last day, because their addresses are on the suppression list of the SES account, which all companies share.",
			counted(found.OnAccountList, "email", "emails"))
	}
	overdue, last := overdueBounces, "in the last 30 days"
	if found.OfEach {
		overdue = overdueOfEach
	}
	expected := x.value("SES_EVENTS_TOPICS") != "" || x.value("SES_EVENTS_QUEUE") != ""
	if found.Newest != nil {
		expected, last = true, "since "+when(*found.Newest)
	}
	if expected && found.Sent >= overdue {
		x.add(check, Failure, "See SESEventsMissing in OPERATIONS.md: SES_EVENTS_TOPICS or SES_EVENTS_QUEUE, the topic's subscription, and the destination of the configuration set, which the workers name in SES_CONFIGURATION_SET.",
			"No event of SES has arrived %s, although at least %d emails were sent: addresses that bounce are not suppressed.", last, found.Sent)
	}
}
