package ses

import (
	"context"

	"github.com/aws/aws-sdk-go-v2/aws"
)

// markedCredentials marks the errors of the wrapped credentials provider. Fetching credentials may
// be an HTTP call (STS, metadata service) whose error has a status and a code; without the mark,
// "AccessDenied" from STS would be read as SES's response to the email.
//
// If the call's own context ends first, the credentials are not at fault, and even credentials that
// need no request can be late on an overloaded machine: the result is then the context's error.
type markedCredentials struct{ aws.CredentialsProvider }

func (m markedCredentials) Retrieve(ctx context.Context) (aws.Credentials, error) {
	found, err := m.CredentialsProvider.Retrieve(ctx)
	switch {
	case err == nil:
		return found, nil
	case ctx.Err() != nil:
		return found, ctx.Err()
	}
	return found, &credentialsError{err}
}

type credentialsError struct{ err error }

func (e *credentialsError) Error() string { return e.err.Error() }
func (e *credentialsError) Unwrap() error { return e.err }
