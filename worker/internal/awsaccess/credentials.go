// Package awsaccess chooses the credentials of AWS clients. The adapters of SES and SQS use it.
package awsaccess

import (
	"fmt"
	"net"
	"net/url"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/credentials"
)

// EmulatorCredentials returns dummy credentials if the endpoint is an emulator and the environment
// has none; nil means the SDK's default chain.
//
// An emulator requires a signature but cannot verify it, while the default chain would
// query the instance metadata service: a delay on a developer's laptop, and on a cloud machine real
// credentials where none are needed. A VPC endpoint uses TLS and keeps the default chain.
func EmulatorCredentials(endpoint string) (aws.CredentialsProvider, error) {
	if !IsEmulator(endpoint) {
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

// IsEmulator reports whether the endpoint is not AWS's: AWS serves its APIs over TLS only, so a plain http endpoint is an
// emulator, and so is a loopback address.
func IsEmulator(endpoint string) bool {
	u, err := url.Parse(endpoint)
	if err != nil || u.Hostname() == "" {
		return false
	}
	ip := net.ParseIP(u.Hostname())
	return u.Scheme == "http" || u.Hostname() == "localhost" || ip != nil && ip.IsLoopback()
}
