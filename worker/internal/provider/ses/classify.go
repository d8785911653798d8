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

// The codes under which the rest of the system knows SES's refusals. They are stored
// with emails and counted in metrics, so they keep their spelling.
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
	codeServiceUnavailable  = "SES_SERVICE_UNAVAILABLE"
	codeThrottling          = "SES_THROTTLING"
	codeTimeout             = "SES_TIMEOUT"
	codeTLSError            = "SES_TLS_ERROR"
	codeUnexpectedResponse  = "SES_UNEXPECTED_RESPONSE"
)

// BreakerCodes are the codes that may open the circuit breaker: of refusals, silences and
// answers that are not about one email.
func BreakerCodes() []string {
	return []string{
		codeAccountPaused, codeAccountSuspended, codeAccessDenied, codeAuthFailed, codeCredentialsExpired, codeCredentialsMissing,
		codeDailyQuota, codeEndpointInvalid, codeInternalError, codeNetworkError, codeResponseUnreadable, codeSendCancelled,
		codeServiceUnavailable, codeTimeout, codeTLSError, codeUnexpectedResponse,
	}
}

// classify says what the error of one SendEmail means for the email. connected tells
// whether the call had got a connection.
//
// The order of the questions is what makes the answer right. The SDK wraps one error
// in another, and the outer ones mislead: a failure to fetch credentials carries
// another service's status, a transport error comes as a response with status 0, and
// an answer that cannot be read still has a status that says most of it.
func classify(err error, connected bool) *provider.Failure {
	if refusedByClient(err) {
		return invalid(err)
	}
	if isCredentialsError(err) && !isCancelled(err) {
		return failure(provider.Park, codeCredentialsMissing, provider.ConfigurationError, err)
	}
	if a, ok := answerOf(err); ok {
		return a.classify()
	}
	return classifySilence(err, connected)
}

// classifySilence is for calls that got no answer at all. What decides is whether a
// connection was there: before, nothing was sent; after, nobody here can know.
func classifySilence(err error, connected bool) *provider.Failure {
	var certificate *tls.CertificateVerificationError
	var noTLS tls.RecordHeaderError
	var transport *smithyhttp.RequestSendError
	switch {
	case isTimeout(err) && connected:
		return outage(failure(provider.Unknown, codeTimeout, provider.TimeoutError, err))
	case isTimeout(err):
		return outage(failure(provider.Retry, codeTimeout, provider.TimeoutError, err))
	case isCancelled(err) && connected:
		return outage(failure(provider.Unknown, codeSendCancelled, provider.TransientError, err))
	case isCancelled(err):
		return failure(provider.Unspent, codeSendCancelled, provider.TransientError, err)
	case connected:
		return outage(failure(provider.Unknown, codeNetworkError, provider.TransientError, err))
	case errors.As(err, &certificate):
		return failure(provider.Park, codeTLSError, provider.ConfigurationError, err)
	case errors.As(err, &transport) && !errors.As(err, &noTLS):
		return outage(failure(provider.Retry, codeNetworkError, provider.TransientError, err))
	default:
		// The SDK gave up by itself before it reached for the network: no region, an
		// address that is none, nothing to sign with. Or the endpoint says https and
		// does not speak TLS. No email is at fault, and each would meet the same.
		return failure(provider.Park, codeEndpointInvalid, provider.ConfigurationError, err)
	}
}

// refusedByClient finds requests the SDK would not even write down.
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

// failure gives the cause as the reason; an answer with words of its own replaces it.
func failure(v provider.Verdict, code string, c provider.Category, err error) *provider.Failure {
	return &provider.Failure{Verdict: v, Code: code, Category: c, Reason: cause(err).Error(), Err: err}
}

// cause drops the SDK's outer layers, which name the operation and a status of 0. Only
// the outer ones: further in, the same types belong to whoever had the credentials.
func cause(err error) error {
	for {
		switch layer := err.(type) { //nolint:errorlint // one layer at a time is the point
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
