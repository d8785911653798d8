package ses

import (
	"context"
	"fmt"
	"net"
	"net/url"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/credentials"
)

// emulatorCredentials returns dummy credentials if the endpoint is an emulator and the environment
// has none; nil means the SDK's default chain.
//
// AWS serves SES over TLS only, so a plain http endpoint is an emulator, and so is a loopback
// address. An emulator requires a signature but cannot verify it, while the default chain would
// query the instance metadata service: a delay on a developer's laptop, and on a cloud machine real
// credentials where none are needed. A VPC endpoint uses TLS and keeps the default chain.
func emulatorCredentials(endpoint string) (aws.CredentialsProvider, error) {
	if !isEmulator(endpoint) {
		return nil, nil
	}
	env, err := config.NewEnvConfig()
	if err != nil {
		return nil, fmt.Errorf("read aws environment: %w", err)
	}
	named := env.Credentials.HasKeys() || env.SharedConfigProfile != "" || env.WebIdentityTokenFilePath != "" ||
		env.ContainerCredentialsEndpoint != "" || env.ContainerCredentialsRelativePath != ""
	if named {
		return nil, nil
	}
	return credentials.NewStaticCredentialsProvider("emulator", "emulator", ""), nil
}

func isEmulator(endpoint string) bool {
	u, err := url.Parse(endpoint)
	if err != nil || u.Hostname() == "" {
		return false
	}
	ip := net.ParseIP(u.Hostname())
	return u.Scheme == "http" || u.Hostname() == "localhost" || ip != nil && ip.IsLoopback()
}

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
