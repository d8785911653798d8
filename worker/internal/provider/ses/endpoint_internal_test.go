package ses

import (
	"context"
	"errors"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/sesv2"
	smithyendpoints "github.com/aws/smithy-go/endpoints"
)

// rules counts its calls, and fails at first.
type rules struct{ asked int }

func (r *rules) ResolveEndpoint(context.Context, sesv2.EndpointParameters) (smithyendpoints.Endpoint, error) {
	if r.asked++; r.asked == 1 {
		return smithyendpoints.Endpoint{}, errors.New("no endpoint")
	}
	var found smithyendpoints.Endpoint
	found.URI.Host = "email.sa-east-1.amazonaws.com"
	return found, nil
}

func TestEndpoint_ResolvedOnce(t *testing.T) {
	t.Parallel()
	r := &rules{}
	e := &endpoint{rules: r}
	if _, err := e.ResolveEndpoint(t.Context(), sesv2.EndpointParameters{}); err == nil {
		t.Error("the error was not returned")
	}
	for range 3 {
		found, err := e.ResolveEndpoint(t.Context(), sesv2.EndpointParameters{})
		if err != nil || found.URI.Host != "email.sa-east-1.amazonaws.com" {
			t.Errorf("%s, %v", found.URI.Host, err)
		}
	}
	if r.asked != 2 {
		t.Errorf("the rules were evaluated %d times, want 2", r.asked)
	}
}
