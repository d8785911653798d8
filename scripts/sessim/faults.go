package sessim

import (
	"encoding/json"
	"fmt"
	"net/http"
	"time"
)

// Fault is one way in which a SendEmail call can fail.
type Fault struct {
	Name string `json:"name"`

	// Status is the HTTP status of the response; 0 if there is never a complete one.
	Status int `json:"status"`

	// ErrorType goes into the header x-amzn-ErrorType, Message into the body.
	ErrorType string `json:"errorType,omitempty"`
	Message   string `json:"message,omitempty"`

	// Accepted says that the mail is accepted nevertheless: it is in the inbox, counts toward the
	// quota, and another attempt makes a duplicate.
	Accepted bool `json:"accepted"`

	form   form
	manner manner
	delay  time.Duration // unless the rule says otherwise
}

// form is the format of a response body.
type form int

const (
	formJSON        form = iota // as SES: {"MessageId"} or {"message"}
	formHTML                    // a proxy's or load balancer's page
	formText                    // a line of text
	formEmpty                   // no body at all
	formEmptyObject             // {}
	formHalf                    // truncated JSON
)

// manner is how a response is sent.
type manner int

const (
	atOnce       manner = iota // the whole response, after the delay
	closed                     // FIN instead of a response
	reset                      // RST instead of a response
	held                       // no response until the client disconnects
	cutInHead                  // the connection ends within the headers
	cutInBody                  // the connection ends within the promised body
	slowHead                   // status line, the delay, then the rest
	slowBody                   // half the delay, headers, the other half, the body
	skewedClock                // the whole response, dated an hour ahead
	malformed                  // bytes that are not HTTP
	redirectAway               // the whole response, with a Location
)

// slowDefault exceeds the usual client timeout of 30 s.
const slowDefault = 35 * time.Second

// The rows for settings and checks of the simulator itself.
const (
	faultAccountSuspended = "account-suspended"
	faultSendingPaused    = "sending-paused"
	faultUnavailable      = "unavailable-json"
	faultDailyQuota       = "daily-quota"
	faultMaxSendRate      = "max-send-rate"
	faultMissingToken     = "missing-authentication-token"
	faultAccessDenied     = "access-denied"
	faultNotFoundHTML     = "not-found-html"
)

// Faults returns the table of all faults. {from}, {to} and {set} in a message are replaced by the
// mail's sender, first recipient and configuration set. If a client cannot know whether the mail
// was accepted, most faults have two rows: the name of the accepting one ends in "-after".
func Faults() []Fault {
	return []Fault{
		// Refusals of this mail.
		{Name: "message-rejected", Status: 400, ErrorType: "MessageRejected", Message: "Message content was rejected."},
		{Name: "identity-not-verified", Status: 400, ErrorType: "MessageRejected", Message: "Email address is not verified. The following identities failed the check in region US-EAST-1: {from}, {to}"},
		{Name: "mail-from-not-verified", Status: 400, ErrorType: "MailFromDomainNotVerifiedException", Message: "Mail FROM domain is not verified."},
		{Name: "config-set-missing", Status: 404, ErrorType: "NotFoundException", Message: "Configuration set {set} does not exist."},
		{Name: "config-set-missing-bad-request", Status: 400, ErrorType: "BadRequestException", Message: "Configuration set {set} does not exist."},
		{Name: "resource-not-found", Status: 404, ErrorType: "NotFoundException", Message: "Tenant acme does not exist."},
		{Name: "bad-request", Status: 400, ErrorType: "BadRequestException", Message: "Illegal address"},
		{Name: "too-large", Status: 413, form: formHTML},

		// Refusals of the account.
		{Name: faultAccountSuspended, Status: 400, ErrorType: "AccountSuspendedException", Message: "The account's ability to send email has been permanently restricted."},
		{Name: faultSendingPaused, Status: 400, ErrorType: "SendingPausedException", Message: "Sending paused for this account. For more information, please check the inbox of the email address associated with your AWS account."},

		// Quota and rate. SES words them alike under several types.
		{Name: faultDailyQuota, Status: 400, ErrorType: "LimitExceededException", Message: "Daily message quota exceeded."},
		{Name: "daily-quota-throttle", Status: 429, ErrorType: "TooManyRequestsException", Message: "Daily message quota exceeded."},
		{Name: "daily-quota-throttling-exception", Status: 400, ErrorType: "ThrottlingException", Message: "Daily message quota exceeded."},
		{Name: faultMaxSendRate, Status: 429, ErrorType: "TooManyRequestsException", Message: "Maximum sending rate exceeded."},
		{Name: "max-send-rate-throttling-exception", Status: 400, ErrorType: "ThrottlingException", Message: "Maximum sending rate exceeded."},
		{Name: "throttle", Status: 429, ErrorType: "TooManyRequestsException", Message: "Rate exceeded"},
		{Name: "throttling-exception", Status: 400, ErrorType: "ThrottlingException", Message: "Rate exceeded"},
		{Name: "limit-exceeded", Status: 400, ErrorType: "LimitExceededException", Message: "There are too many instances of the specified resource type."},
		{Name: "plain-429", Status: 429, Message: "Too Many Requests", form: formText},

		// Errors of the service.
		{Name: faultUnavailable, Status: 503, ErrorType: "ServiceUnavailable", Message: "Service is unavailable."},
		{Name: "unavailable-html", Status: 503, form: formHTML},
		{Name: "unavailable-empty", Status: 503, form: formEmpty},
		{Name: "internal-failure", Status: 500, ErrorType: "InternalFailure", Message: "The request processing has failed because of an unknown error."},
		{Name: "internal-failure-after", Status: 500, ErrorType: "InternalFailure", Message: "The request processing has failed because of an unknown error.", Accepted: true},
		{Name: "internal-service-error", Status: 500, ErrorType: "InternalServiceErrorException", Message: "An internal error occurred."},
		{Name: "bad-gateway", Status: 502, form: formHTML},
		{Name: "bad-gateway-after", Status: 502, form: formHTML, Accepted: true},
		{Name: "gateway-timeout", Status: 504, form: formHTML},
		{Name: "gateway-timeout-after", Status: 504, form: formHTML, Accepted: true},
		{Name: "request-timeout", Status: 408, ErrorType: "RequestTimeout", Message: "The request timed out before it was read."},
		{Name: "request-timeout-exception", Status: 408, ErrorType: "RequestTimeoutException", Message: "The request timed out before it was read."},

		// Credentials and permissions.
		{Name: "expired-token", Status: 403, ErrorType: "ExpiredTokenException", Message: "The security token included in the request is expired"},
		{Name: "request-expired", Status: 400, ErrorType: "RequestExpired", Message: "Request has expired."},
		{Name: "unrecognized-client", Status: 403, ErrorType: "UnrecognizedClientException", Message: "The security token included in the request is invalid."},
		{Name: "invalid-client-token-id", Status: 403, ErrorType: "InvalidClientTokenId", Message: "The security token included in the request is invalid."},
		{Name: "incomplete-signature", Status: 403, ErrorType: "IncompleteSignature", Message: "The request signature does not conform to AWS standards."},
		{Name: "signature-mismatch", Status: 403, ErrorType: "SignatureDoesNotMatch", Message: "The request signature we calculated does not match the signature you provided."},
		{Name: "invalid-signature", Status: 403, ErrorType: "InvalidSignatureException", Message: "The request signature we calculated does not match the signature you provided."},
		{Name: "clock-skew", Status: 403, ErrorType: "InvalidSignatureException", Message: "Signature expired: the time of the request is too far from the server's.", manner: skewedClock},
		{Name: faultMissingToken, Status: 403, ErrorType: "MissingAuthenticationToken", Message: "Missing Authentication Token"},
		{Name: "missing-authentication-token-exception", Status: 403, ErrorType: "MissingAuthenticationTokenException", Message: "Missing Authentication Token"},
		{Name: faultAccessDenied, Status: 403, ErrorType: "AccessDeniedException", Message: "User: arn:aws:iam::123456789012:user/sim is not authorized to perform this operation."},
		{Name: "forbidden-html", Status: 403, form: formHTML},
		{Name: "unauthorized", Status: 401, Message: "Unauthorized", form: formText},

		// Responses of a server other than SES.
		{Name: "redirect", Status: 301, form: formHTML, manner: redirectAway},
		{Name: faultNotFoundHTML, Status: 404, form: formHTML},
		{Name: "method-not-allowed-html", Status: 405, form: formHTML},
		{Name: "html-200", Status: 200, form: formHTML},

		// Accepted, with an unreadable response.
		{Name: "empty-object", Status: 200, Accepted: true, form: formEmptyObject},
		{Name: "empty-body", Status: 200, Accepted: true, form: formEmpty},
		{Name: "truncated", Status: 200, Accepted: true, form: formHalf},
		{Name: "truncated-cut", Status: 200, Accepted: true, manner: cutInBody},

		// The connection breaks after the request was read in full.
		{Name: "cut-before", manner: closed},
		{Name: "cut-after", Accepted: true, manner: closed},
		{Name: "reset-before", manner: reset},
		{Name: "reset-after", Accepted: true, manner: reset},
		{Name: "cut-in-headers", Accepted: true, manner: cutInHead},
		{Name: "malformed", manner: malformed},

		// Delays. The delay is the rule's delayMs, else 35 s; hang never responds.
		{Name: "slow", Status: 200, Accepted: true, delay: slowDefault},
		{Name: "slow-headers", Status: 200, Accepted: true, manner: slowHead, delay: slowDefault},
		{Name: "slow-body", Status: 200, Accepted: true, manner: slowBody, delay: slowDefault},
		{Name: "hang", manner: held},
		{Name: "hang-after", Accepted: true, manner: held},
	}
}

// body returns the content type and the whole body of the response.
func (f Fault) body(messageID, message string) (contentType string, body []byte) {
	switch f.form {
	case formHTML:
		title := fmt.Sprintf("%d %s", f.Status, http.StatusText(f.Status))
		return "text/html", []byte("<html>\n<head><title>" + title + "</title></head>\n<body><center><h1>" + title + "</h1></center></body>\n</html>\n")
	case formText:
		return "text/plain", []byte(message + "\n")
	case formEmpty:
		return "", nil
	case formEmptyObject:
		return "application/json", []byte("{}")
	}
	if f.Status == http.StatusOK {
		return "application/json", []byte(`{"MessageId":"` + messageID + `"}`)
	}
	quoted, _ := json.Marshal(message) // a string can always be encoded
	return "application/json", []byte(`{"message":` + string(quoted) + `}`)
}
