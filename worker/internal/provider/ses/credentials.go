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

// emulatorCredentials returns made-up credentials when the endpoint is an emulator
// and the environment names none, else nil: then the SDK's own chain decides.
//
// AWS serves SES over TLS only, so plain http is an emulator, and so is anything on
// this machine. An emulator wants a signature but cannot check it, while the chain
// would end at the metadata address of a cloud machine: a wait on a developer's
// laptop, and on a cloud machine real credentials where none are needed. A VPC
// endpoint speaks TLS and keeps the chain.
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

// markedCredentials marks the errors of the provider it wraps. Fetching credentials
// may be an HTTP call of its own (STS, a metadata service) whose error carries a
// status and a code; without the mark, "AccessDenied" from STS would read as SES's
// answer to the email.
type markedCredentials struct{ aws.CredentialsProvider }

func (m markedCredentials) Retrieve(ctx context.Context) (aws.Credentials, error) {
	found, err := m.CredentialsProvider.Retrieve(ctx)
	if err != nil {
		return found, &credentialsError{err}
	}
	return found, nil
}

type credentialsError struct{ err error }

func (e *credentialsError) Error() string { return e.err.Error() }
func (e *credentialsError) Unwrap() error { return e.err }
