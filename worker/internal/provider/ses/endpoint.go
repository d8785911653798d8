package ses

import (
	"context"
	"sync/atomic"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sesv2"
	smithyendpoints "github.com/aws/smithy-go/endpoints"
)

// endpoint caches the resolved endpoint. The SDK evaluates its rules twice per email, which took 6
// % of the worker's CPU time; a client uses one region, and no email sets its own endpoint.
type endpoint struct {
	rules sesv2.EndpointResolverV2
	found atomic.Pointer[smithyendpoints.Endpoint]
}

// ResolveEndpoint implements sesv2.EndpointResolverV2.
func (e *endpoint) ResolveEndpoint(ctx context.Context, p sesv2.EndpointParameters) (smithyendpoints.Endpoint, error) {
	if found := e.found.Load(); found != nil {
		return *found, nil
	}
	found, err := e.rules.ResolveEndpoint(ctx, p)
	if err == nil {
		e.found.Store(&found)
	}
	return found, err
}

// resolve resolves the endpoint once at the start: some settings conflict only here (FIPS from the
// environment and a custom endpoint).
func resolve(ctx context.Context, o sesv2.Options) error {
	_, err := o.EndpointResolverV2.ResolveEndpoint(ctx, sesv2.EndpointParameters{
		Region:       aws.String(o.Region),
		Endpoint:     o.BaseEndpoint,
		UseFIPS:      aws.Bool(o.EndpointOptions.UseFIPSEndpoint == aws.FIPSEndpointStateEnabled),
		UseDualStack: aws.Bool(o.EndpointOptions.UseDualStackEndpoint == aws.DualStackEndpointStateEnabled),
	})
	return err
}
