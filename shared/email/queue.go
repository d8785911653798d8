package email

// The queues of single emails. There are three because asynq (Redis) has no priorities: a worker
// takes from them in the ratio 6 : 3 : 1.
const (
	QueueHigh   = "email:send:high" // priority 1 to 3
	QueueNormal = "email:send"      // priority 4 to 7
	QueueLow    = "email:send:low"  // priority 8 to 10
)

// DefaultPriority is the default. Priorities range from 1, the most urgent, to 10.
const DefaultPriority = 5

// UrgentPriority is the highest priority.
const UrgentPriority = 1

// MailingPriority is the priority of a mailing's emails: below that of single emails.
const MailingPriority = 8

// The queues of bulk jobs in RabbitMQ: one job per mailing, and one message per imported recipient.
const (
	QueueMailings   = "mailing.jobs.process"
	QueueRecipients = "recipients_queue"
)

// Targets of outbox rows.
const (
	TargetSend       = "email:send"
	TargetMailing    = "mailing.process"
	TargetRecipients = "recipients.upsert"
)

// Queues lists the queues of single emails, the most urgent first.
func Queues() []string { return []string{QueueHigh, QueueNormal, QueueLow} }

// BulkQueues lists the queues of bulk jobs.
func BulkQueues() []string { return []string{QueueMailings, QueueRecipients} }

// QueueWeight is how many of ten tasks a worker takes from the queue; 0 for any other queue.
func QueueWeight(queue string) int {
	switch queue {
	case QueueHigh:
		return 6
	case QueueNormal:
		return 3
	case QueueLow:
		return 1
	default:
		return 0
	}
}

// QueueFor is the queue for a priority from 1 (urgent) to 10.
func QueueFor(priority int) string {
	switch {
	case priority <= 3:
		return QueueHigh
	case priority <= 7:
		return QueueNormal
	default:
		return QueueLow
	}
}
