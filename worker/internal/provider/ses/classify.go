package ses

import (
	"context"
	"crypto/tls"
	"errors"

	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"email-gateway/worker/internal/provider"
)

// Error codes for SES failures. They are stored with emails and counted in metrics, so they must
// not change.
const (
	codeAccountPaused       = "SES_ACCOUNT_SENDING_PAUSED"
	codeAccountSuspended    = "SES_ACCOUNT_SUSPENDED"
	codeAccessDenied        = "SES_ACCESS_DENIED"
	codeAuthFailed          = "SES_AUTH_FAILED"
	codeBadRequest          = "SES_BAD_REQUEST"
	codeConfigurationSet    = "SES_CONFIGURATION_SET_DOES_NOT_EXIST"
	codeCredentialsExpired  = "SES_CREDENTIALS_EXPIRED"
	codeCredentialsMissing  = "SES_CREDENTIALS_UNAVAILABLE"
	codeDailyQuota          = "SES_DAILY_QUOTA_EXCEEDED"
	codeEndpointInvalid     = "SES_ENDPOINT_INVALID"
	codeIdentityNotVerified = "SES_IDENTITY_NOT_VERIFIED"
	codeInternalError       = "SES_INTERNAL_ERROR"
	codeInvalidRequest      = "SES_INVALID_REQUEST"
	codeMailFromNotVerified = "SES_MAIL_FROM_DOMAIN_NOT_VERIFIED"
	codeMaxSendRate         = "SES_MAX_SEND_RATE_EXCEEDED"
	codeMessageRejected     = "SES_MESSAGE_REJECTED"
	codeMessageTooLarge     = "SES_MESSAGE_TOO_LARGE"
	codeNetworkError        = "NETWORK_ERROR"
	codeResourceNotFound    = "SES_RESOURCE_NOT_FOUND"
	codeResponseUnreadable  = "SES_RESPONSE_UNREADABLE"
	codeSendCancelled       = "SEND_CANCELLED"
	codeSetPaused           = "SES_CONFIGURATION_SET_SENDING_PAUSED"
	codeSandbox             = "SES_SANDBOX"
	codeServiceUnavailable  = "SES_SERVICE_UNAVAILABLE"
	codeThrottling          = "SES_THROTTLING"
	codeTimeout             = "SES_TIMEOUT"
	codeTLSError            = "SES_TLS_ERROR"
	codeUnexpectedResponse  = "SES_UNEXPECTED_RESPONSE"
)

// BreakerCodes are the codes of failures that may open the circuit breaker, because they do not
// concern a single email.
func BreakerCodes() []string {
	return []string{
		codeAccountPaused, codeAccountSuspended, codeAccessDenied, codeAuthFailed, codeConfigurationSet, codeSetPaused, codeCredentialsExpired, codeCredentialsMissing,
		codeDailyQuota, codeEndpointInvalid, codeInternalError, codeNetworkError, codeResponseUnreadable, codeSendCancelled,
		codeServiceUnavailable, codeTimeout, codeTLSError, codeUnexpectedResponse,
	}
}

// request is what classify needs to know about a call.
type request struct {
	complete bool // all of it may have been sent
	partial  bool // a part of its body was sent
	namesSet bool // it named a configuration set
	emulator bool // it was sent to an emulator of SES
	sandbox  bool // the account was in the sandbox
}

// classify maps the error of one SendEmail call to a Failure.
//
// The order of the checks matters. The SDK wraps one error in another, and the outer ones mislead:
// a failure to fetch credentials has the HTTP status of another service, a transport error is a
// response with status 0, and an unreadable response still has a usable status.
func classify(err error, r request) *provider.Failure {
	if refusedByClient(err) {
		return invalid(err)
	}
	if isCredentialsError(err) {
		return failure(provider.Park, codeCredentialsMissing, provider.ConfigurationError, err)
	}
	f := classifyAnswer(err, r)
	if r.partial { // whatever answered, SES has not accepted it
		f.Incomplete = f.Outage
		if f.Outcome == provider.Unknown {
			f.Outcome = provider.Retry
		}
	}
	return f
}

func classifyAnswer(err error, r request) *provider.Failure {
	if a, ok := answerOf(err); ok {
		a.request = r
		return a.classify()
	}
	return classifySilence(err, r.complete)
}

// classifySilence classifies calls without a response. SES has not accepted a request that was not sent as a whole; of
// one that may have been, the outcome is unknown.
func classifySilence(err error, complete bool) *provider.Failure {
	var certificate *tls.CertificateVerificationError
	var noTLS tls.RecordHeaderError
	var transport *smithyhttp.RequestSendError
	switch {
	case isTimeout(err) && complete:
		return outage(failure(provider.Unknown, codeTimeout, provider.TimeoutError, err))
	case isTimeout(err):
		return outage(failure(provider.Retry, codeTimeout, provider.TimeoutError, err))
	case isCancelled(err) && complete:
		return outage(failure(provider.Unknown, codeSendCancelled, provider.TransientError, err))
	case isCancelled(err):
		return failure(provider.Unspent, codeSendCancelled, provider.TransientError, err)
	case complete:
		return outage(failure(provider.Unknown, codeNetworkError, provider.TransientError, err))
	case errors.As(err, &certificate):
		return failure(provider.Park, codeTLSError, provider.ConfigurationError, err)
	case errors.As(err, &transport) && !errors.As(err, &noTLS):
		return outage(failure(provider.Retry, codeNetworkError, provider.TransientError, err))
	default:
		// The SDK failed before using the network: no region, an invalid address, nothing to sign
		// with. Or the endpoint is https and does not speak TLS. Every email would fail in the same
		// way.
		return failure(provider.Park, codeEndpointInvalid, provider.ConfigurationError, err)
	}
}

// refusedByClient reports whether the SDK could not serialize the request.
func refusedByClient(err error) bool {
	var missing smithy.InvalidParamsError
	var unwritable *smithy.SerializationError
	return errors.As(err, &missing) || errors.As(err, &unwritable)
}

func isCredentialsError(err error) bool {
	var credentials *credentialsError
	return errors.As(err, &credentials)
}

func isTimeout(err error) bool {
	var timeout interface{ Timeout() bool }
	return errors.Is(err, context.DeadlineExceeded) || errors.As(err, &timeout) && timeout.Timeout()
}

func isCancelled(err error) bool {
	return errors.Is(err, context.Canceled)
}

func invalid(err error) *provider.Failure {
	return failure(provider.Failed, codeInvalidRequest, provider.ValidationError, err)
}

func unreadable(err error) *provider.Failure {
	return failure(provider.Unreadable, codeResponseUnreadable, provider.TransientError, err)
}

// failure uses the cause as the reason; a response's own message replaces it.
func failure(v provider.Outcome, code string, c provider.Category, err error) *provider.Failure {
	return &provider.Failure{Outcome: v, Code: code, Category: c, Reason: cause(err).Error(), Err: err}
}

// cause removes the SDK's outer layers, which name the operation and a status of 0. Inner layers of
// the same types belong to the credentials provider and are kept.
func cause(err error) error {
	for {
		switch layer := err.(type) { //nolint:errorlint // one layer at a time
		case *smithy.OperationError:
			err = layer.Err
		case *awshttp.ResponseError:
			err = layer.Err
		case *smithyhttp.RequestSendError:
			err = layer.Err
		default:
			return err
		}
	}
}
