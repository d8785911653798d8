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

// answer is an HTTP response other than a receipt. It may come from SES or from a proxy; only SES
// names its errors.
type answer struct {
	request
	status  int
	code    string // the error's name, "" when the answer has none
	message string
	skewed  bool // the SDK found a clock skew of minutes
	err     error
}

// answerOf extracts the response from the error of a call, if there was one.
func answerOf(err error) (answer, bool) {
	var response *smithyhttp.ResponseError
	// The SDK wraps transport errors as responses too: those have status 0.
	if !errors.As(err, &response) || response.HTTPStatusCode() == 0 {
		return answer{}, false
	}
	a := answer{status: response.HTTPStatusCode(), err: err}

	// Use the interface, not GenericAPIError: errors declared by SES have their own types.
	var named smithy.APIError
	if errors.As(err, &named) {
		a.code, a.message = named.ErrorCode(), named.ErrorMessage()
	} else {
		// The body was truncated or is a proxy's page. The header may still have the error name,
		// sometimes followed by ":" and an address.
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

// unnamed is the SDK's placeholder for a missing code or message.
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
		// Whatever the body was, SES accepts with 2xx and refuses with other codes.
		return unreadable(a.err)
	}
	if f := a.byName(); f != nil {
		return f
	}
	return a.byStatus()
}

// byName classifies the errors named by SES and by AWS's front end; nil for other names. Most names
// occur with and without "Exception". Some are those of the SES v1 API, which emulators still use.
func (a answer) byName() *provider.Failure {
	switch strings.TrimSuffix(a.code, "Exception") {
	case "MessageRejected":
		if a.says("not verified") {
			if a.sandbox { // there SES also returns this for recipients, which a tenant cannot verify
				return a.failure(provider.Failed, codeSandbox, provider.ConfigurationError)
			}
			return a.failure(provider.Failed, codeIdentityNotVerified, provider.ConfigurationError)
		}
		if a.says("for this account") { // the v1 API's form of SendingPaused and AccountSuspended
			switch {
			case a.says("paused"):
				return accountWide(a.failure(provider.Failed, codeAccountPaused, provider.PermanentError))
			case a.says("suspended"):
				return accountWide(a.failure(provider.Failed, codeAccountSuspended, provider.PermanentError))
			}
		}
		return a.failure(provider.Failed, codeMessageRejected, provider.PermanentError)
	case "MailFromDomainNotVerified":
		return a.failure(provider.Failed, codeMailFromNotVerified, provider.ConfigurationError)
	case "ConfigurationSetDoesNotExist":
		return a.byConfigurationSet(codeConfigurationSet)
	case "ConfigurationSetSendingPaused":
		return a.byConfigurationSet(codeSetPaused)
	case "NotFound":
		if a.missesConfigurationSet() {
			return a.byConfigurationSet(codeConfigurationSet)
		}
		return a.failure(provider.Failed, codeResourceNotFound, provider.ConfigurationError)
	case "BadRequest":
		if a.missesConfigurationSet() {
			return a.byConfigurationSet(codeConfigurationSet)
		}
		return a.failure(provider.Failed, codeBadRequest, provider.PermanentError)

	case "AccountSuspended":
		return accountWide(a.failure(provider.Failed, codeAccountSuspended, provider.PermanentError))
	case "SendingPaused", "AccountSendingPaused":
		if a.says("configuration set") { // SES v2 has one name for both pauses
			return a.byConfigurationSet(codeSetPaused)
		}
		return accountWide(a.failure(provider.Failed, codeAccountPaused, provider.PermanentError))

	case "LimitExceeded", "TooManyRequests", "Throttling", "Throttled", "RequestThrottled", "RequestLimitExceeded",
		"DailyQuotaExceeded", "MaxSendRateExceeded":
		return a.throttled()

	case "ServiceUnavailable":
		return outage(a.failure(provider.Retry, codeServiceUnavailable, provider.TransientError))
	case "InternalFailure", "InternalServiceError", "InternalServerError", "InternalError":
		return outage(a.failure(provider.Unknown, codeInternalError, provider.TransientError))
	case "RequestAborted":
		return a.failure(provider.Unknown, codeInternalError, provider.TransientError)
	case "RequestTimeout":
		// SES timed out while reading the request, so it did not process it.
		return a.failure(provider.Retry, codeTimeout, provider.TimeoutError)

	case "ExpiredToken", "RequestExpired":
		return a.failure(provider.Park, codeCredentialsExpired, provider.ConfigurationError)
	case "UnrecognizedClient", "InvalidClientTokenId", "MissingAuthenticationToken", "IncompleteSignature",
		"SignatureDoesNotMatch", "InvalidSignature", "AuthFailure", "RequestTimeTooSkewed":
		return a.failure(provider.Park, codeAuthFailed, provider.ConfigurationError)
	case "AccessDenied", "NotAuthorized":
		// A clock skew of minutes is reported as AccessDenied. The SDK has recorded the offset and
		// signs the next call correctly, so parking is sufficient: the attempt does not count, and a
		// probe follows.
		if a.skewed {
			return a.failure(provider.Park, codeAuthFailed, provider.ConfigurationError)
		}
		// The text names an identity, also if the credentials may send as none.
		return ambiguous(a.failure(provider.Park, codeAccessDenied, provider.ConfigurationError))
	}
	return nil
}

// byStatus classifies responses without a known error name.
func (a answer) byStatus() *provider.Failure {
	switch a.status {
	case http.StatusUnauthorized, http.StatusForbidden:
		return ambiguous(a.failure(provider.Park, codeAccessDenied, provider.ConfigurationError))
	case http.StatusNotFound, http.StatusMethodNotAllowed:
		return ambiguous(a.failure(provider.Park, codeUnexpectedResponse, provider.ConfigurationError))
	case http.StatusRequestTimeout:
		return a.failure(provider.Retry, codeTimeout, provider.TimeoutError)
	case http.StatusRequestEntityTooLarge:
		return a.failure(provider.Failed, codeMessageTooLarge, provider.PermanentError)
	case http.StatusTooManyRequests:
		return a.throttled()
	case http.StatusServiceUnavailable:
		// Without SES's name it is a proxy's, which may have lost its connection to SES after it had forwarded the email.
		return outage(a.failure(provider.Unknown, codeServiceUnavailable, provider.TransientError))
	}
	switch {
	case a.status >= 500:
		// It is unknown whether the failure was before or after accepting the email.
		return outage(a.failure(provider.Unknown, codeInternalError, provider.TransientError))
	case a.status >= 400 && a.code != "",
		// SES names its errors; emulators may not. A proxy's error may have a message too.
		a.emulator && a.message != "" && (a.status == http.StatusBadRequest || a.status == http.StatusUnprocessableEntity):
		return a.failure(provider.Failed, codeBadRequest, provider.PermanentError)
	default:
		// A redirect, or an error that is not in SES's format: the endpoint is wrong and every email
		// would get the same response, or a proxy refuses this one.
		return ambiguous(a.failure(provider.Park, codeUnexpectedResponse, provider.ConfigurationError))
	}
}

// throttled distinguishes the quotas by the message text, since the error types overlap.
func (a answer) throttled() *provider.Failure {
	switch {
	case a.code == "DailyQuotaExceeded" || a.says("daily message quota"):
		return accountWide(a.failure(provider.Throttled, codeDailyQuota, provider.QuotaError))
	case a.code == "MaxSendRateExceeded" || a.says("maximum sending rate"):
		return a.failure(provider.Throttled, codeMaxSendRate, provider.QuotaError)
	}
	return a.failure(provider.Throttled, codeThrottling, provider.QuotaError)
}

// missesConfigurationSet detects a missing configuration set, which SES reports as a NotFound or a BadRequest.
func (a answer) missesConfigurationSet() bool {
	return a.says("configuration set") && a.says("exist")
}

// byConfigurationSet classifies an answer that is caused by a configuration set. It parks the email if the request named the
// set, because every request names the same one. Other requests use the default set of their identity, so emails of other
// identities are not affected.
func (a answer) byConfigurationSet(code string) *provider.Failure {
	if a.namesSet {
		return a.failure(provider.Park, code, provider.ConfigurationError)
	}
	return a.failure(provider.Failed, code, provider.ConfigurationError)
}

func (a answer) says(fragment string) bool {
	return strings.Contains(strings.ToLower(a.message), fragment)
}

func (a answer) failure(v provider.Outcome, code string, c provider.Category) *provider.Failure {
	return failure(v, code, c, a.err)
}

func accountWide(f *provider.Failure) *provider.Failure {
	f.AccountWide = true
	return f
}

func ambiguous(f *provider.Failure) *provider.Failure {
	f.Ambiguous = true
	return f
}

func outage(f *provider.Failure) *provider.Failure {
	f.Outage = true
	return f
}
