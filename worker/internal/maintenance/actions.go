package maintenance

import "github.com/prometheus/client_golang/prometheus"

// Actions counts the actions of the maintenance loops in one metric, one series per kind of action.
type Actions struct {
	done     *prometheus.CounterVec
	registry prometheus.Registerer
}

// recipientReturned counts recipients that were enqueued again because RabbitMQ had lost their message.
const recipientReturned = "intake_returned"

// Actions of the cleaners: data that was deleted or erased after its retention.
const (
	keyExpired        = "idempotency_key_expired"
	noticeExpired     = "notification_expired"
	deadLetterExpired = "dead_letter_expired"
	replayExpired     = "replay_expired"
	webhookExpired    = "webhook_delivery_expired"
	archiveExpired    = "archived_task_expired"
	archiveTrimmed    = "archived_task_trimmed"
	auditExpired      = "audit_expired"
	recipientExpired  = "recipient_expired"
	rowExpired        = "outbox_row_expired"
	bodyExpired       = "body_expired"
	logExpired        = "log_expired"
	eventExpired      = "event_expired"
	feedExpired       = "event_feed_expired"
	entryExpired      = "mailing_entry_expired"
	fileExpired       = "mailing_file_expired"
	storedFileDeleted = "stored_file_deleted"
	aggregateExpired  = "aggregate_expired"
	valueExpired      = "mailing_value_expired"
	templateExpired   = "mailing_template_expired"
	hashExpired       = "hash_expired"
	mailingCancelled  = "unstarted_mailing_cancelled"
	failedCancelled   = "failed_mailing_cancelled"
)

// Actions on a month's partition. It is postponed while another transaction uses the table, or
// while many of its emails are still in the outbox.
const (
	partitionMade      = "partition_made"
	partitionDropped   = "partition_dropped"
	partitionPostponed = "partition_postponed"
)

// NewActions registers the counter, once per process. others are actions that only the queue adapter defines. All series start
// with 0: Prometheus does not see the first event of a series that starts with it.
func NewActions(registry prometheus.Registerer, others ...string) *Actions {
	a := &Actions{registry: registry, done: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "maintenance_actions_total", Help: "Rows and tasks that were repaired, deleted or erased, by action.",
	}, []string{"action"})}
	for _, action := range append(others, recipientReturned, keyExpired, noticeExpired, deadLetterExpired, replayExpired, webhookExpired, archiveExpired, archiveTrimmed, auditExpired,
		recipientExpired, rowExpired, bodyExpired, logExpired, eventExpired, feedExpired, entryExpired, fileExpired, storedFileDeleted, aggregateExpired, valueExpired, templateExpired, hashExpired, mailingCancelled, failedCancelled, partitionMade, partitionDropped, partitionPostponed) {
		a.done.WithLabelValues(action)
	}
	registry.MustRegister(a.done)
	return a
}

// Count adds n to the counter of an action. The caller logs it, once per round.
func (a *Actions) Count(action string, n int) {
	if n > 0 {
		a.done.WithLabelValues(action).Add(float64(n))
	}
}
