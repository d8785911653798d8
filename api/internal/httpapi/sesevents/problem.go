package sesevents

import (
	"fmt"
	"net/http"
	"time"

	"email-gateway/api/internal/httpapi/problem"
	"email-gateway/api/internal/sns"
)

// Problems of the SNS route.
var (
	disabled = problem.Problem{
		Status: http.StatusServiceUnavailable, Code: "SES_EVENTS_DISABLED", RetryAfter: time.Minute, Disabled: true,
		Detail: "this installation accepts no SES events: SES_EVENTS_TOPICS is not set",
	}
	rawDelivery = problem.Problem{
		Status: http.StatusBadRequest, Code: "SNS_RAW_DELIVERY",
		Detail: "raw message delivery omits the signature: disable it for this subscription",
	}
	notSNS = problem.Problem{
		Status: http.StatusUnsupportedMediaType, Code: "UNSUPPORTED_MEDIA_TYPE",
		Detail: "SNS sends text/plain or application/json, not compressed",
	}
	TooLarge = problem.Problem{
		Status: http.StatusRequestEntityTooLarge, Code: "BODY_TOO_LARGE",
		Detail: fmt.Sprintf("the body is larger than %d bytes", MaxSize),
	}
	unknownTopic = problem.Problem{
		Status: http.StatusForbidden, Code: "SNS_TOPIC_UNKNOWN",
		Detail: "the topic is not one of SES_EVENTS_TOPICS",
	}
	staleNotification = problem.Problem{
		Status: http.StatusForbidden, Code: "SNS_MESSAGE_STALE",
		Detail: fmt.Sprintf("the message is older than %.0f days", sns.MaxAge.Hours()/24),
	}
	snsUnreachable = problem.Problem{
		Status: http.StatusServiceUnavailable, Code: "SNS_UNREACHABLE", RetryAfter: 5 * time.Second,
		Detail: "SNS cannot be reached to verify the message",
	}
)

func malformedNotification(err error) problem.Problem {
	return problem.Problem{Status: http.StatusBadRequest, Code: "SNS_MALFORMED", Detail: err.Error()}
}

func forgedNotification(err error) problem.Problem {
	return problem.Problem{Status: http.StatusForbidden, Code: "SNS_SIGNATURE_INVALID", Detail: err.Error()}
}
