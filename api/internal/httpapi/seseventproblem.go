package httpapi

import (
	"fmt"
	"net/http"
	"time"

	"email-gateway/api/internal/sns"
)

// Problems of the SNS route.
var (
	eventsDisabled = problem{
		status: http.StatusServiceUnavailable, code: "SES_EVENTS_DISABLED", retryAfter: time.Minute,
		detail: "this installation accepts no SES events: SES_EVENTS_TOPICS is not set",
	}
	rawDelivery = problem{
		status: http.StatusBadRequest, code: "SNS_RAW_DELIVERY",
		detail: "raw message delivery omits the signature: disable it for this subscription",
	}
	notSNS = problem{
		status: http.StatusUnsupportedMediaType, code: "UNSUPPORTED_MEDIA_TYPE",
		detail: "SNS sends text/plain or application/json, not compressed",
	}
	notificationTooLarge = problem{
		status: http.StatusRequestEntityTooLarge, code: "BODY_TOO_LARGE",
		detail: fmt.Sprintf("the body is larger than %d bytes", maxNotification),
	}
	unknownTopic = problem{
		status: http.StatusForbidden, code: "SNS_TOPIC_UNKNOWN",
		detail: "the topic is not one of SES_EVENTS_TOPICS",
	}
	staleNotification = problem{
		status: http.StatusForbidden, code: "SNS_MESSAGE_STALE",
		detail: fmt.Sprintf("the message is older than %.0f days", sns.MaxAge.Hours()/24),
	}
	snsUnreachable = problem{
		status: http.StatusServiceUnavailable, code: "SNS_UNREACHABLE", retryAfter: 5 * time.Second,
		detail: "SNS cannot be reached to verify the message",
	}
)

func malformedNotification(err error) problem {
	return problem{status: http.StatusBadRequest, code: "SNS_MALFORMED", detail: err.Error()}
}

func forgedNotification(err error) problem {
	return problem{status: http.StatusForbidden, code: "SNS_SIGNATURE_INVALID", detail: err.Error()}
}
