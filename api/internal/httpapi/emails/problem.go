package emails

import (
	"fmt"
	"net/http"

	"email-gateway/api/internal/httpapi/problem"
	"email-gateway/shared/email"
	"email-gateway/shared/store/outbox"
)

// Problems of requests about emails.
var nothingAbout = problem.Problem{Status: http.StatusNotFound, Code: "NOT_FOUND", Detail: "there is no email about this aggregate"}

// aggregateTooLarge: a cancel must fit in one transaction.
var aggregateTooLarge = problem.Problem{
	Status: http.StatusUnprocessableEntity, Code: "AGGREGATE_TOO_LARGE",
	Detail: fmt.Sprintf("the aggregate has emails of more than %d values of eventType, and cannot be cancelled as a whole: list its emails with GET /v1/emails by "+
		"aggregateType, aggregateId and eventType, and cancel each of them", outbox.MaxAggregateEmails),
}

// canBeHeld lists the statuses in which an email can be changed.
const canBeHeld = "only PENDING, ENQUEUED and RETRY_SCHEDULED emails can be cancelled or rescheduled"

func cancelTooLate(s email.Status) problem.Problem {
	return problem.Problem{Status: http.StatusConflict, Code: "CANCEL_TOO_LATE", Detail: fmt.Sprintf("the email is %s; %s", s, canBeHeld)}
}

func rescheduleTooLate(s email.Status) problem.Problem {
	return problem.Problem{Status: http.StatusConflict, Code: "RESCHEDULE_TOO_LATE", Detail: fmt.Sprintf("the email is %s; %s", s, canBeHeld)}
}

func notReplayable(s email.Status) problem.Problem {
	return problem.Problem{Status: http.StatusConflict, Code: "NOT_REPLAYABLE", Detail: fmt.Sprintf("the email is %s; only FAILED, EXPIRED and CANCELLED emails can be retried", s)}
}

func contentGone() problem.Problem {
	return problem.Problem{Status: http.StatusConflict, Code: "NOT_REPLAYABLE", Detail: "the email's content has been deleted: send a new email, with another aggregate if it has one"}
}

func replaced() problem.Problem {
	return problem.Problem{Status: http.StatusConflict, Code: "NOT_REPLAYABLE", Detail: "another email of the same aggregate and event type replaced it"}
}
