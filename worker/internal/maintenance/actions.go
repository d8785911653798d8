package maintenance

import "github.com/prometheus/client_golang/prometheus"

// Actions counts what the loops that look after tables and queues did, in one metric,
// whose series are as many as there are kinds of action.
type Actions struct{ done *prometheus.CounterVec }

// intakeReturned: a recipient whose message RabbitMQ has lost was put on its queue again.
const intakeReturned = "intake_returned"

// What cleaners delete when it is past its time.
const (
	keyExpired        = "idempotency_key_expired"
	noticeExpired     = "notification_expired"
	deadLetterExpired = "dead_letter_expired"
	replayExpired     = "replay_expired"
	archiveExpired    = "archived_task_expired"
	auditExpired      = "audit_expired"
	recipientExpired  = "recipient_expired"
	rowExpired        = "outbox_row_expired"
	bodyExpired       = "body_expired"
	logExpired        = "log_expired"
	eventExpired      = "event_expired"
	entryExpired      = "mailing_entry_expired"
	fileExpired       = "mailing_file_expired"
	aggregateExpired  = "aggregate_expired"
	valueExpired      = "mailing_value_expired"
	templateExpired   = "mailing_template_expired"
	hashExpired       = "hash_expired"
	mailingCancelled  = "unstarted_mailing_cancelled"
)

// What became of a month's partition. It is postponed when somebody uses the table, or
// when many of its emails are still in the outbox.
const (
	partitionMade      = "partition_made"
	partitionDropped   = "partition_dropped"
	partitionPostponed = "partition_postponed"
)

// NewActions makes the counter. There is one for a process. others are the actions that
// only the queue knows by name. All are shown from the start, with 0: of a series that
// begins with its first event nobody sees that event.
func NewActions(registry prometheus.Registerer, others ...string) *Actions {
	a := &Actions{prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "maintenance_actions_total", Help: "Rows and tasks that were put right or cleared away, by what was done.",
	}, []string{"action"})}
	for _, action := range append(others, intakeReturned, keyExpired, noticeExpired, deadLetterExpired, replayExpired, archiveExpired, auditExpired,
		recipientExpired, rowExpired, bodyExpired, logExpired, eventExpired, entryExpired, fileExpired, aggregateExpired, valueExpired, templateExpired, hashExpired, mailingCancelled, partitionMade, partitionDropped, partitionPostponed) {
		a.done.WithLabelValues(action)
	}
	registry.MustRegister(a.done)
	return a
}

// Count adds n of an action. Whoever did it logs it, a round at a time.
func (a *Actions) Count(action string, n int) {
	if n > 0 {
		a.done.WithLabelValues(action).Add(float64(n))
	}
}
