package ses_test

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"email-gateway/worker/internal/provider"
	"email-gateway/worker/internal/provider/ses"
)

// outcome is one possible end of a call.
type outcome struct {
	name     string
	at       func(*testing.T) endpoint
	config   func(*ses.Config)
	context  func(*testing.T, endpoint) context.Context
	err      error             // replaces the server, for errors that no server can cause
	html     int               // bytes of html; 0 = those of message
	aws      bool              // the server is in the place of SES, not an emulator
	want     *provider.Failure // nil: accepted; Reason and Err are not compared
	requests int32             // that the server must have received
}

// TestOutcomes tests the classification of every kind of failure, most of them with a real server.
func TestOutcomes(t *testing.T) {
	t.Parallel()
	for _, o := range slices.Concat(accepted(), refused(), throttled(), broken(), denied(), misled(), silent(), local()) {
		t.Run(o.name, func(t *testing.T) {
			t.Parallel()
			got := o.happen(t)
			if o.want == nil {
				if got != nil {
					t.Fatalf("Send: %v, want a receipt", got)
				}
				return
			}
			var f *provider.Failure
			if !errors.As(got, &f) {
				t.Fatalf("Send error = %v, want a failure", got)
			}
			if d := cmp.Diff(o.want, f, cmpopts.IgnoreFields(provider.Failure{}, "Reason", "Err")); d != "" {
				t.Errorf("failure (-want +got):\n%s\ncause: %v", d, f.Err)
			}
			if f.Reason == "" || f.Err == nil {
				t.Errorf("failure without reason or cause: %+v", f)
			}
		})
	}
}

// Every code that may open the circuit breaker has a metric series from the start.
func TestBreakerCodes(t *testing.T) {
	t.Parallel()
	want := map[string]bool{"SES_CREDENTIALS_UNAVAILABLE": true} // see TestCredentialsUnavailable
	for _, o := range slices.Concat(accepted(), refused(), throttled(), broken(), denied(), misled(), silent(), local()) {
		if f := o.want; f != nil && (f.Outage || f.AccountWide || f.Outcome == provider.Park || f.Outcome == provider.Unreadable) {
			want[f.Code] = true
		}
	}
	if diff := cmp.Diff(slices.Sorted(maps.Keys(want)), slices.Sorted(slices.Values(ses.BreakerCodes()))); diff != "" {
		t.Errorf("codes that open the breaker (-want +got):\n%s", diff)
	}
}

// happen makes the call, checks the number of requests and returns the error.
func (o outcome) happen(t *testing.T) error {
	if o.err != nil {
		return ses.Classify(o.err)
	}
	e := o.at(t)
	c := ses.Config{Endpoint: e.url}
	if o.config != nil {
		o.config(&c)
	}
	ctx := t.Context()
	if o.context != nil {
		ctx = o.context(t, e)
	}
	sender := newSender(t, c)
	if o.aws {
		sender = sender.AsAWS()
	}
	m := message()
	m.HTML += strings.Repeat("x", o.html)
	_, err := sender.Send(ctx, m)
	// A request that the client gave up on may still be in transit to the server.
	seen := func() bool { return e.seen.Load() >= o.requests }
	<-cancelWhen(t, seen).Done()
	if n := e.seen.Load(); n != o.requests {
		t.Errorf("the server saw %d requests, want %d", n, o.requests)
	}
	return err
}

func failed(code string, c provider.Category) *provider.Failure {
	return &provider.Failure{Outcome: provider.Failed, Code: code, Category: c}
}

func parks(code string) *provider.Failure {
	return &provider.Failure{Outcome: provider.Park, Code: code, Category: provider.ConfigurationError}
}

func ambiguous(f *provider.Failure) *provider.Failure {
	f.Ambiguous = true
	return f
}

func throttles(code string) *provider.Failure {
	return &provider.Failure{Outcome: provider.Throttled, Code: code, Category: provider.QuotaError}
}

func retries(code string, c provider.Category) *provider.Failure {
	return &provider.Failure{Outcome: provider.Retry, Code: code, Category: c}
}

// unknown outcomes are those of a provider that failed or did not respond: an outage, if other
// emails fail too.
func unknown(code string, c provider.Category) *provider.Failure {
	return outage(&provider.Failure{Outcome: provider.Unknown, Code: code, Category: c})
}

// named adds SES's name of the error.
func named(name string, f *provider.Failure) *provider.Failure {
	f.OriginalCode = name
	return f
}

func accountWide(f *provider.Failure) *provider.Failure {
	f.AccountWide = true
	return f
}

func incomplete(f *provider.Failure) *provider.Failure {
	f.Incomplete = true
	return outage(f)
}

func outage(f *provider.Failure) *provider.Failure {
	f.Outage = true
	return f
}
