package ses

import (
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"email-gateway/worker/internal/provider"
)

// answer is an HTTP answer other than a receipt. It came from SES or from something
// in front of it: only SES names its errors.
type answer struct {
	status  int
	code    string // the error's name, "" when the answer has none
	message string
	skewed  bool // the SDK found its clock and the answer's Date minutes apart
	err     error
}

// answerOf finds the answer in the error of a call, if there was one.
func answerOf(err error) (answer, bool) {
	var response *smithyhttp.ResponseError
	// The SDK wraps transport errors as responses too: those have status 0.
	if !errors.As(err, &response) || response.HTTPStatusCode() == 0 {
		return answer{}, false
	}
	a := answer{status: response.HTTPStatusCode(), err: err}

	// The interface, not GenericAPIError: the errors SES declares have types of their own.
	var named smithy.APIError
	if errors.As(err, &named) {
		a.code, a.message = named.ErrorCode(), named.ErrorMessage()
	} else {
		// The body was cut or is a proxy's page, and so read as no error at all. The
		// header may still tell: a name, sometimes followed by ":" and an address.
		a.code, _, _ = strings.Cut(response.Response.Header.Get("X-Amzn-ErrorType"), ":")
	}
	if a.code == unnamed {
		a.code = ""
	}
	if a.message == unnamed {
		a.message = ""
	}
	// Only the SDK's wrapper for a probable clock skew has this method.
	var skew interface{ RetryableError() bool }
	a.skewed = errors.As(err, &skew) && skew.RetryableError()
	return a, true
}

// unnamed is what the SDK puts where an answer says nothing.
const unnamed = "UnknownError"

func (a answer) classify() *provider.Failure {
	f := a.judge()
	f.OriginalCode = a.code
	if a.message != "" {
		f.Reason = a.message
	} else {
		f.Reason = fmt.Sprintf("HTTP %d: %s", a.status, f.Reason)
	}
	return f
}

func (a answer) judge() *provider.Failure {
	if a.status/100 == 2 {
		// Whatever the body was meant to say, SES accepts with 2xx and refuses otherwise.
		return unreadable(a.err)
	}
	if f := a.byName(); f != nil {
		return f
	}
	return a.byStatus()
}

// byName knows the errors that SES and AWS's front door name, and nil for others. Most
// names come with and without "Exception", depending on who in AWS says them. A few
// are those of SES's first API, which emulators still use.
func (a answer) byName() *provider.Failure {
	switch strings.TrimSuffix(a.code, "Exception") {
	case "MessageRejected":
		// In the sandbox this is said of unverified recipients too.
		if a.says("not verified") {
			return a.failure(provider.Failed, codeIdentityNotVerified, provider.ConfigurationError)
		}
		return a.failure(provider.Failed, codeMessageRejected, provider.PermanentError)
	case "MailFromDomainNotVerified":
		return a.failure(provider.Failed, codeMailFromNotVerified, provider.ConfigurationError)
	case "ConfigurationSetDoesNotExist":
		return a.failure(provider.Failed, codeConfigurationSet, provider.ConfigurationError)
	case "NotFound":
		if a.missesConfigurationSet() {
			return a.failure(provider.Failed, codeConfigurationSet, provider.ConfigurationError)
		}
		return a.failure(provider.Failed, codeResourceNotFound, provider.ConfigurationError)
	case "BadRequest":
		if a.missesConfigurationSet() {
			return a.failure(provider.Failed, codeConfigurationSet, provider.ConfigurationError)
		}
		return a.failure(provider.Failed, codeBadRequest, provider.PermanentError)

	case "AccountSuspended":
		return accountWide(a.failure(provider.Failed, codeAccountSuspended, provider.PermanentError))
	case "SendingPaused", "AccountSendingPaused", "ConfigurationSetSendingPaused":
		return accountWide(a.failure(provider.Failed, codeAccountPaused, provider.PermanentError))

	case "LimitExceeded", "TooManyRequests", "Throttling", "Throttled", "RequestThrottled", "RequestLimitExceeded",
		"DailyQuotaExceeded", "MaxSendRateExceeded":
		return a.throttled()

	case "ServiceUnavailable":
		return outage(a.failure(provider.Retry, codeServiceUnavailable, provider.TransientError))
	case "InternalFailure", "InternalServiceError", "InternalServerError", "InternalError":
		return outage(a.failure(provider.Unknown, codeInternalError, provider.TransientError))
	case "RequestTimeout":
		// SES waited for the request, not for itself: it never had it.
		return a.failure(provider.Retry, codeTimeout, provider.TimeoutError)

	case "ExpiredToken", "RequestExpired":
		return a.failure(provider.Park, codeCredentialsExpired, provider.ConfigurationError)
	case "UnrecognizedClient", "InvalidClientTokenId", "MissingAuthenticationToken", "IncompleteSignature",
		"SignatureDoesNotMatch", "InvalidSignature", "AuthFailure", "RequestTimeTooSkewed":
		return a.failure(provider.Park, codeAuthFailed, provider.ConfigurationError)
	case "AccessDenied":
		// A clock that is wrong by minutes reads as denied. The SDK has noted the
		// difference by now and signs the next call with it, so parking, which gives
		// the try back and probes, is all it takes.
		if a.skewed {
			return a.failure(provider.Park, codeAuthFailed, provider.ConfigurationError)
		}
		return a.failure(provider.Park, codeAccessDenied, provider.ConfigurationError)
	}
	return nil
}

// byStatus is for answers without a name, or with one that says nothing here.
func (a answer) byStatus() *provider.Failure {
	switch a.status {
	case http.StatusUnauthorized, http.StatusForbidden:
		return a.failure(provider.Park, codeAccessDenied, provider.ConfigurationError)
	case http.StatusNotFound, http.StatusMethodNotAllowed:
		return a.failure(provider.Park, codeUnexpectedResponse, provider.ConfigurationError)
	case http.StatusRequestTimeout:
		return a.failure(provider.Retry, codeTimeout, provider.TimeoutError)
	case http.StatusRequestEntityTooLarge:
		return a.failure(provider.Failed, codeMessageTooLarge, provider.PermanentError)
	case http.StatusTooManyRequests:
		return a.throttled()
	case http.StatusServiceUnavailable:
		return outage(a.failure(provider.Retry, codeServiceUnavailable, provider.TransientError))
	}
	switch {
	case a.status >= 500:
		// It broke while it had the email: before or after taking it, nobody says.
		return outage(a.failure(provider.Unknown, codeInternalError, provider.TransientError))
	case a.status >= 400 && (a.code != "" || a.message != ""):
		return a.failure(provider.Failed, codeBadRequest, provider.PermanentError)
	default:
		// A redirect, or a refusal in words that are not SES's: the endpoint leads
		// somewhere else, and every email would go the same way.
		return a.failure(provider.Park, codeUnexpectedResponse, provider.ConfigurationError)
	}
}

// throttled tells the quotas apart by their text, for the types overlap.
func (a answer) throttled() *provider.Failure {
	switch {
	case a.code == "DailyQuotaExceeded" || a.says("daily message quota"):
		return accountWide(a.failure(provider.Throttled, codeDailyQuota, provider.QuotaError))
	case a.code == "MaxSendRateExceeded" || a.says("maximum sending rate"):
		return a.failure(provider.Throttled, codeMaxSendRate, provider.QuotaError)
	}
	return a.failure(provider.Throttled, codeThrottling, provider.QuotaError)
}

// missesConfigurationSet matters because a deleted default set is a bad request, and
// one named in the request is not found.
func (a answer) missesConfigurationSet() bool {
	return a.says("configuration set") && a.says("exist")
}

func (a answer) says(fragment string) bool {
	return strings.Contains(strings.ToLower(a.message), fragment)
}

func (a answer) failure(v provider.Verdict, code string, c provider.Category) *provider.Failure {
	return failure(v, code, c, a.err)
}

func accountWide(f *provider.Failure) *provider.Failure {
	f.AccountWide = true
	return f
}

func outage(f *provider.Failure) *provider.Failure {
	f.Outage = true
	return f
}
