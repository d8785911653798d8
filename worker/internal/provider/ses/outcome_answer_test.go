package ses_test

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"email-gateway/worker/internal/provider"
	"email-gateway/worker/internal/provider/ses"
)

const page = "<html><body><h1>Something is in between</h1></body></html>"

// accepted: every 2xx means accepted, whether or not the receipt is valid.
func accepted() []outcome {
	unreadable := &provider.Failure{Outcome: provider.Unreadable, Code: "SES_RESPONSE_UNREADABLE", Category: provider.TransientError}
	stalls := func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, `{"MessageId":"01`)
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	}
	cuts := func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "1000")
		io.WriteString(w, `{"MessageId":"01`)
	}
	brief := func(c *ses.Config) { c.CallTimeout = time.Second } // enough for the 200 to be received
	return []outcome{
		{name: "receipt", at: says(200, `{"MessageId":"0100-a"}`), requests: 1},
		{name: "200 without an id", at: says(200, `{}`), want: unreadable, requests: 1},
		{name: "200 with an empty id", at: says(200, `{"MessageId":""}`), want: unreadable, requests: 1},
		{name: "200 with an empty body", at: says(200, ``), want: unreadable, requests: 1},
		{name: "202 without an id", at: says(202, `{}`), want: unreadable, requests: 1},
		{name: "200 with a page", at: says(200, page), want: unreadable, requests: 1},
		{name: "200 truncated", at: says(200, `{"MessageId":"0100`), want: unreadable, requests: 1},
		{name: "200 cut off", at: serve(cuts), want: unreadable, requests: 1},
		{name: "200 that never ends", at: serve(stalls), config: brief, want: unreadable, requests: 1},
	}
}

// refused: SES refuses the email.
func refused() []outcome {
	const (
		sandbox = "Email address is not verified. The following identities failed the check in region US-EAST-1: maria@cliente.example"
		noSet   = "Configuration set <news> does not exist."
		setOff  = "Sending is paused for configuration set <news>."
	)
	namedSet := func(c *ses.Config) { c.ConfigurationSet = "news" }
	return []outcome{
		{
			name: "identity not verified", at: refuses(400, "MessageRejected", sandbox), requests: 1,
			want: named("MessageRejected", failed("SES_IDENTITY_NOT_VERIFIED", provider.ConfigurationError)),
		},
		{
			name: "message rejected", at: refuses(400, "MessageRejected", "Address blacklisted."), requests: 1,
			want: named("MessageRejected", failed("SES_MESSAGE_REJECTED", provider.PermanentError)),
		},
		{
			name: "mail from domain not verified", at: refuses(400, "MailFromDomainNotVerifiedException", "Mail FROM domain is not verified."), requests: 1,
			want: named("MailFromDomainNotVerifiedException", failed("SES_MAIL_FROM_DOMAIN_NOT_VERIFIED", provider.ConfigurationError)),
		},
		{
			name: "named configuration set missing", at: refuses(404, "NotFoundException", noSet), requests: 1,
			want: named("NotFoundException", failed("SES_CONFIGURATION_SET_DOES_NOT_EXIST", provider.ConfigurationError)),
		},
		{
			name: "default configuration set missing", at: refuses(400, "BadRequestException", noSet), requests: 1,
			want: named("BadRequestException", failed("SES_CONFIGURATION_SET_DOES_NOT_EXIST", provider.ConfigurationError)),
		},
		{
			name: "configuration set missing, as in v1", at: refuses(400, "ConfigurationSetDoesNotExistException", "news"), requests: 1,
			want: named("ConfigurationSetDoesNotExistException", failed("SES_CONFIGURATION_SET_DOES_NOT_EXIST", provider.ConfigurationError)),
		},
		{
			name: "the worker's configuration set missing", at: refuses(404, "NotFoundException", noSet), requests: 1,
			config: namedSet,
			want:   named("NotFoundException", parks("SES_CONFIGURATION_SET_DOES_NOT_EXIST")),
		},
		{
			name: "the worker's configuration set missing, as a bad request", at: refuses(400, "BadRequestException", noSet), requests: 1,
			config: namedSet,
			want:   named("BadRequestException", parks("SES_CONFIGURATION_SET_DOES_NOT_EXIST")),
		},
		{
			name: "default configuration set paused", at: refuses(400, "SendingPausedException", setOff), requests: 1,
			want: named("SendingPausedException", failed("SES_CONFIGURATION_SET_SENDING_PAUSED", provider.ConfigurationError)),
		},
		{
			name: "default configuration set paused, as in v1", at: refuses(400, "ConfigurationSetSendingPausedException", "news"), requests: 1,
			want: named("ConfigurationSetSendingPausedException", failed("SES_CONFIGURATION_SET_SENDING_PAUSED", provider.ConfigurationError)),
		},
		{
			name: "the worker's configuration set paused", at: refuses(400, "SendingPausedException", setOff), requests: 1,
			config: namedSet,
			want:   named("SendingPausedException", parks("SES_CONFIGURATION_SET_SENDING_PAUSED")),
		},
		{
			name: "account paused, as in v1", at: refuses(400, "MessageRejected", "Sending paused for this account. For more information, check the inbox."), requests: 1,
			want: accountWide(named("MessageRejected", failed("SES_ACCOUNT_SENDING_PAUSED", provider.PermanentError))),
		},
		{
			name: "account suspended, as in v1", at: refuses(400, "MessageRejected", "Sending suspended for this account. For more information, check the inbox."), requests: 1,
			want: accountWide(named("MessageRejected", failed("SES_ACCOUNT_SUSPENDED", provider.PermanentError))),
		},
		{
			name: "something else missing", at: refuses(404, "NotFoundException", "Tenant acme was not found."), requests: 1,
			want: named("NotFoundException", failed("SES_RESOURCE_NOT_FOUND", provider.ConfigurationError)),
		},
		{
			name: "bad request", at: refuses(400, "BadRequestException", "Illegal address"), requests: 1,
			want: named("BadRequestException", failed("SES_BAD_REQUEST", provider.PermanentError)),
		},
		{name: "bad request, its message a number", at: serve(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("X-Amzn-ErrorType", "BadRequestException:http://internal.amazon.com/")
			w.WriteHeader(400)
			io.WriteString(w, `{"message":5}`)
		}), requests: 1, want: named("BadRequestException", failed("SES_BAD_REQUEST", provider.PermanentError))},
		{
			name: "bad request, named in the body", at: says(400, `{"__type":"com.amazonaws.sesv2#BadRequestException","message":"Illegal address"}`), requests: 1,
			want: named("BadRequestException", failed("SES_BAD_REQUEST", provider.PermanentError)),
		},
		{
			name: "bad request of an emulator, not named", at: says(400, `{"type":"BadRequestException","message":"Invalid email"}`), requests: 1,
			want: failed("SES_BAD_REQUEST", provider.PermanentError),
		},
		{
			name: "unknown name", at: refuses(409, "ConflictException", "try to agree"), requests: 1,
			want: named("ConflictException", failed("SES_BAD_REQUEST", provider.PermanentError)),
		},
		{
			name: "account suspended", at: refuses(400, "AccountSuspendedException", "Account is suspended."), requests: 1,
			want: accountWide(named("AccountSuspendedException", failed("SES_ACCOUNT_SUSPENDED", provider.PermanentError))),
		},
		{
			name: "account paused", at: refuses(400, "SendingPausedException", "Sending is paused for this account."), requests: 1,
			want: accountWide(named("SendingPausedException", failed("SES_ACCOUNT_SENDING_PAUSED", provider.PermanentError))),
		},
		{
			name: "a proxy's 421 with a message", at: says(421, `{"message":"misdirected request"}`), requests: 1,
			want: &provider.Failure{Outcome: provider.Park, Code: "SES_UNEXPECTED_RESPONSE", Category: provider.ConfigurationError, Ambiguous: true},
		},
		{
			name: "not authorized", at: refuses(400, "NotAuthorized", "You do not have permission to perform this action."), requests: 1,
			want: named("NotAuthorized", &provider.Failure{Outcome: provider.Park, Code: "SES_ACCESS_DENIED", Category: provider.ConfigurationError, Ambiguous: true}),
		},
		{
			name: "aborted", at: refuses(400, "RequestAbortedException", "The request was aborted before a reply was returned."), requests: 1,
			want: named("RequestAbortedException", &provider.Failure{Outcome: provider.Unknown, Code: "SES_INTERNAL_ERROR", Category: provider.TransientError}),
		},
		{
			name: "message too large", at: says(413, page), requests: 1,
			want: failed("SES_MESSAGE_TOO_LARGE", provider.PermanentError),
		},
	}
}

// throttled: the message, not the error type, says which quota it was.
func throttled() []outcome {
	var all []outcome
	for _, name := range []string{"LimitExceededException", "TooManyRequestsException", "ThrottlingException", "Throttling"} {
		status := map[bool]int{true: 429, false: 400}[strings.HasPrefix(name, "TooMany")]
		all = append(all,
			outcome{
				name: "daily quota as " + name, at: refuses(status, name, "Daily message quota exceeded."), requests: 1,
				want: accountWide(named(name, throttles("SES_DAILY_QUOTA_EXCEEDED"))),
			},
			outcome{
				name: "send rate as " + name, at: refuses(status, name, "Maximum sending rate exceeded."), requests: 1,
				want: named(name, throttles("SES_MAX_SEND_RATE_EXCEEDED")),
			},
			outcome{
				name: "other throttle as " + name, at: refuses(status, name, "Rate exceeded"), requests: 1,
				want: named(name, throttles("SES_THROTTLING")),
			},
		)
	}
	return append(all,
		outcome{
			name: "daily quota, as in v1", at: refuses(400, "DailyQuotaExceeded", "enough"), requests: 1,
			want: accountWide(named("DailyQuotaExceeded", throttles("SES_DAILY_QUOTA_EXCEEDED"))),
		},
		outcome{
			name: "send rate, as in v1", at: refuses(400, "MaxSendRateExceeded", "slower"), requests: 1,
			want: named("MaxSendRateExceeded", throttles("SES_MAX_SEND_RATE_EXCEEDED")),
		},
		outcome{name: "429 without a name", at: says(429, ``), requests: 1, want: throttles("SES_THROTTLING")},
		outcome{name: "429 with a page", at: says(429, page), requests: 1, want: throttles("SES_THROTTLING")},
	)
}

// broken: server failures. Only some of them mean that the email was certainly not accepted.
func broken() []outcome {
	unavailable := unknown("SES_SERVICE_UNAVAILABLE", provider.TransientError) // a proxy's
	internal := unknown("SES_INTERNAL_ERROR", provider.TransientError)
	return []outcome{
		{
			name: "503 with a name", at: refuses(503, "ServiceUnavailable", "Service is unavailable."), requests: 1,
			want: named("ServiceUnavailable", outage(retries("SES_SERVICE_UNAVAILABLE", provider.TransientError))),
		},
		{name: "503 with a page", at: says(503, page), requests: 1, want: unavailable},
		{name: "503 with nothing", at: says(503, ``), requests: 1, want: unavailable},
		{
			name: "500 with a name", at: refuses(500, "InternalFailure", "We tried."), requests: 1,
			want: named("InternalFailure", unknown("SES_INTERNAL_ERROR", provider.TransientError)),
		},
		{
			name: "500 with a declared name", at: refuses(500, "InternalServiceErrorException", "We tried."), requests: 1,
			want: named("InternalServiceErrorException", unknown("SES_INTERNAL_ERROR", provider.TransientError)),
		},
		{name: "500 with nothing", at: says(500, ``), requests: 1, want: internal},
		{name: "502 with a page", at: says(502, page), requests: 1, want: internal},
		{name: "504 with a page", at: says(504, page), requests: 1, want: internal},
		{
			name: "408 with a page", at: says(408, page), requests: 1,
			want: retries("SES_TIMEOUT", provider.TimeoutError),
		},
		{
			name: "request timeout by name", at: refuses(400, "RequestTimeoutException", "Your socket connection was not read from."), requests: 1,
			want: named("RequestTimeoutException", retries("SES_TIMEOUT", provider.TimeoutError)),
		},
	}
}

// denied: the email is fine, but the sender's credentials or permissions are not.
func denied() []outcome {
	var all []outcome
	for name, code := range map[string]string{
		"ExpiredToken": "SES_CREDENTIALS_EXPIRED", "ExpiredTokenException": "SES_CREDENTIALS_EXPIRED", "RequestExpired": "SES_CREDENTIALS_EXPIRED",
		"UnrecognizedClientException": "SES_AUTH_FAILED", "InvalidClientTokenId": "SES_AUTH_FAILED",
		"MissingAuthenticationTokenException": "SES_AUTH_FAILED", "IncompleteSignature": "SES_AUTH_FAILED",
		"SignatureDoesNotMatch": "SES_AUTH_FAILED", "InvalidSignatureException": "SES_AUTH_FAILED",
	} {
		all = append(all, outcome{name: name, at: refuses(403, name, "No."), requests: 1, want: named(name, parks(code))})
	}
	for _, name := range []string{"AccessDeniedException", "AccessDenied", "OptInRequired"} {
		all = append(all, outcome{name: name, at: refuses(403, name, "No."), requests: 1, want: named(name, ambiguous(parks("SES_ACCESS_DENIED")))})
	}
	late := func(name string) func(*testing.T) endpoint {
		return serve(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Date", time.Now().Add(-time.Hour).UTC().Format(http.TimeFormat))
			refuse(w, 403, name, "Signature not yet current.")
		})
	}
	return append(all,
		outcome{
			name: "expired with a 400", at: refuses(400, "ExpiredTokenException", "No."), requests: 1,
			want: named("ExpiredTokenException", parks("SES_CREDENTIALS_EXPIRED")),
		},
		outcome{
			name: "clock skew", at: late("InvalidSignatureException"), requests: 1,
			want: named("InvalidSignatureException", parks("SES_AUTH_FAILED")),
		},
		outcome{
			name: "clock skew reported as denied", at: late("AccessDeniedException"), requests: 1,
			want: named("AccessDeniedException", parks("SES_AUTH_FAILED")),
		},
		outcome{name: "403 with a page", at: says(403, page), requests: 1, want: ambiguous(parks("SES_ACCESS_DENIED"))},
		outcome{name: "401 with nothing", at: says(401, ``), requests: 1, want: ambiguous(parks("SES_ACCESS_DENIED"))},
	)
}

// misled: the response is not from SES.
func misled() []outcome {
	elsewhere := func(status int, location string) func(*testing.T) endpoint {
		return serve(func(w http.ResponseWriter, _ *http.Request) {
			if location != "" {
				w.Header().Set("Location", location)
			}
			w.WriteHeader(status)
		})
	}
	unexpected := ambiguous(parks("SES_UNEXPECTED_RESPONSE"))
	return []outcome{
		{name: "301 without an address", at: elsewhere(301, ""), requests: 1, want: unexpected},
		{name: "302", at: elsewhere(302, "/login"), requests: 1, want: unexpected},
		{name: "302 to an invalid address", at: elsewhere(302, "http://%zz"), requests: 1, want: unexpected},
		{name: "307, which asks for the POST again", at: elsewhere(307, "/v2/email/outbound-emails"), requests: 1, want: unexpected},
		{name: "308, which asks for the POST again", at: elsewhere(308, "/v2/email/outbound-emails"), requests: 1, want: unexpected},
		{name: "404 with a page", at: says(404, page), requests: 1, want: unexpected},
		{name: "404 with nothing", at: says(404, ``), requests: 1, want: unexpected},
		{name: "404 of an emulator", at: says(404, `<UnknownOperationException/>`), requests: 1, want: unexpected},
		{name: "405 with a page", at: says(405, page), requests: 1, want: unexpected},
		{name: "400 with a page", at: says(400, page), requests: 1, want: unexpected},
		{name: "400 of a proxy, with a message", at: says(400, `{"message":"Bad Request"}`), aws: true, requests: 1, want: unexpected},
		{name: "422 of a proxy, with a message", at: says(422, `{"message":"Unprocessable"}`), aws: true, requests: 1, want: unexpected},
	}
}
