package emails

import (
	"fmt"
	"net/http"

	"email-gateway/api/internal/httpapi/problem"
	"email-gateway/shared/email"
)

// Problems of requests about emails.
var nothingAbout = problem.Problem{Status: http.StatusNotFound, Code: "NOT_FOUND", Detail: "there is no email about this aggregate"}

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
	return problem.Problem{Status: http.StatusConflict, Code: "NOT_REPLAYABLE", Detail: "the email's content has been deleted: send a new email"}
}

func replaced() problem.Problem {
	return problem.Problem{Status: http.StatusConflict, Code: "NOT_REPLAYABLE", Detail: "another email of the same aggregate and event type replaced it"}
}
