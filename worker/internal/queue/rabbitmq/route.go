package rabbitmq

import (
	"errors"
	"maps"
	"math"
	"reflect"
	"strings"
	"time"
	"unicode/utf8"

	amqp "github.com/rabbitmq/amqp091-go"

	"email-gateway/shared/email"
	"email-gateway/worker/internal/queue"
)

// maxReason bounds the reason header in bytes: all headers share one frame, and operators read the reason in a table.
const maxReason = 500

// route returns the next queue of a failed task of the main queue, and the message for it.
func route(t Topology, v result) (Queue, amqp.Publishing) {
	var (
		later   *queue.RetryLater
		dead    *queue.Dead
		to      = t.DLQ
		retried = v.task.Retried
		reason  = v.err.Error()
	)
	switch {
	case errors.As(v.err, &dead):
		reason = dead.Reason
	case errors.As(v.err, &later) && later.Uncounted:
		to, reason = t.retry(0), later.Reason
	default:
		if later != nil {
			reason = later.Reason
		}
		if !v.task.LastTry {
			to = t.retry(retried)
			retried++
		}
	}
	headers := maps.Clone(v.delivery.Headers)
	maps.DeleteFunc(headers, func(name string, _ any) bool { return brokersOwn(name) })
	if headers == nil {
		headers = amqp.Table{}
	}
	headers[headerRetries] = int32(min(retried, math.MaxInt32))
	headers[headerReason] = shorten(email.MaskText(reason))
	return to, amqp.Publishing{
		MessageId:    v.delivery.MessageId,
		ContentType:  v.delivery.ContentType,
		Type:         v.delivery.Type,
		DeliveryMode: amqp.Persistent,
		Timestamp:    time.Now(),
		Headers:      headers,
		Body:         v.delivery.Body,
	}
}

// brokersOwn reports whether the broker itself sets the header. Such headers describe the old message and would grow with every
// retry.
func brokersOwn(name string) bool {
	return name == "x-death" || name == "x-delivery-count" || name == "x-acquired-count" ||
		strings.HasPrefix(name, "x-first-death-") || strings.HasPrefix(name, "x-last-death-")
}

// retries returns how often a task was retried. Clients write the number in any integer type of
// AMQP; other values and negative numbers count as 0.
func retries(headers amqp.Table) int {
	v := reflect.ValueOf(headers[headerRetries])
	switch {
	case v.IsValid() && v.CanInt():
		return int(min(max(v.Int(), 0), math.MaxInt32))
	case v.IsValid() && v.CanUint():
		return int(min(v.Uint(), math.MaxInt32))
	}
	return 0
}

func shorten(text string) string {
	if len(text) <= maxReason {
		return text
	}
	end := maxReason
	for end > 0 && !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end] + "…"
}
