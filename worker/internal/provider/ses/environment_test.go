package ses_test

import (
	"context"
	"encoding/pem"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/aws/smithy-go"

	"email-gateway/worker/internal/provider"
	"email-gateway/worker/internal/provider/ses"
)

// TestMain removes the shell's AWS settings.
func TestMain(m *testing.M) {
	for _, variable := range os.Environ() {
		if name, _, _ := strings.Cut(variable, "="); strings.HasPrefix(name, "AWS_") {
			set(name, "")
		}
	}
	set("AWS_CONFIG_FILE", os.DevNull)
	set("AWS_SHARED_CREDENTIALS_FILE", os.DevNull)
	set("AWS_EC2_METADATA_DISABLED", "true")
	os.Exit(m.Run())
}

func set(name, value string) {
	if err := os.Setenv(name, value); err != nil {
		log.Fatal(err)
	}
}

// A shell's or a pod's environment may have many settings for other AWS clients.
func TestEnvironment(t *testing.T) {
	t.Run("cannot redirect mail", func(t *testing.T) {
		other := says(200, `{"MessageId":"other"}`)(t)
		t.Setenv("AWS_ENDPOINT_URL", other.url)
		t.Setenv("AWS_ENDPOINT_URL_SESV2", other.url)
		t.Setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
		t.Setenv("AWS_SECRET_ACCESS_KEY", "secret")
		var asked string
		s := newSender(t, ses.Config{Region: "sa-east-1"}.WithDialer(func(_ context.Context, _, address string) (net.Conn, error) {
			asked = address
			return nil, errors.New("no network in tests")
		}))
		if _, err := s.Send(t.Context(), message()); err == nil || asked != "email.sa-east-1.amazonaws.com:443" {
			t.Errorf("Send dialled %q: %v", asked, err)
		}
		mine := newBackend(t)
		if _, err := newSender(t, ses.Config{Endpoint: mine.server.URL}).Send(t.Context(), message()); err != nil || len(mine.Received()) != 1 {
			t.Errorf("Send to the configured endpoint: %v", err)
		}
		if n := other.seen.Load(); n != 0 {
			t.Errorf("the endpoint from the environment saw %d requests", n)
		}
	})

	t.Run("cannot turn retries on", func(t *testing.T) {
		t.Setenv("AWS_MAX_ATTEMPTS", "5")
		t.Setenv("AWS_RETRY_MODE", "adaptive")
		for name, at := range map[string]func(*testing.T) endpoint{"503": says(503, ``), "reset": reads(reset), "throttle": refuses(429, "TooManyRequestsException", "slow")} {
			e := at(t)
			if _, err := newSender(t, ses.Config{Endpoint: e.url}).Send(t.Context(), message()); err == nil || e.seen.Load() != 1 {
				t.Errorf("%s: %d requests, %v", name, e.seen.Load(), err)
			}
		}
	})

	t.Run("signs with its credentials", func(t *testing.T) {
		t.Setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
		t.Setenv("AWS_SECRET_ACCESS_KEY", "secret")
		b := newBackend(t)
		if _, err := newSender(t, ses.Config{Endpoint: b.server.URL}).Send(t.Context(), message()); err != nil {
			t.Fatalf("Send: %v", err)
		}
		if _, header := b.last(); !strings.Contains(header.Get("Authorization"), "Credential=AKIDEXAMPLE/") {
			t.Errorf("signed with %s", header.Get("Authorization"))
		}
	})

	t.Run("adds trusted certificates", func(t *testing.T) {
		server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.ProtoMajor != 1 {
				http.Error(w, "one connection for all calls", http.StatusHTTPVersionNotSupported)
				return
			}
			io.WriteString(w, `{"MessageId":"0100-a"}`)
		}))
		server.EnableHTTP2 = true // offered, and must not be used
		server.StartTLS()
		t.Cleanup(server.Close)
		bundle := filepath.Join(t.TempDir(), "ca.pem")
		block := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
		if err := os.WriteFile(bundle, block, 0o600); err != nil {
			t.Fatal(err)
		}
		t.Setenv("AWS_CA_BUNDLE", bundle)
		var writes atomic.Int32
		s := newSender(t, ses.Config{Endpoint: server.URL}.WithDialer(countWrites(&writes)))
		if _, err := s.Send(t.Context(), message()); err != nil {
			t.Errorf("Send over TLS: %v", err)
		}
		shaken := writes.Load()
		m := message()
		m.HTML = strings.Repeat("a", 10<<10)
		if _, err := s.Send(t.Context(), m); err != nil || writes.Load() != shaken+1 {
			t.Errorf("the second email over TLS was sent by %d writes: %v", writes.Load()-shaken, err)
		}
	})

	t.Run("conflicting settings fail New", func(t *testing.T) {
		t.Setenv("AWS_USE_FIPS_ENDPOINT", "true")
		if _, err := ses.New(t.Context(), ses.Config{Region: "us-east-1", Endpoint: "http://127.0.0.1:1"}); err == nil {
			t.Error("New accepts FIPS with a custom endpoint")
		}
	})
}

// Without credentials nothing is sent, and another service's refusal is not classified as SES's.
func TestCredentialsUnavailable(t *testing.T) {
	fails := func(t *testing.T, ctx context.Context, c ses.Config, want provider.Failure) *provider.Failure {
		t.Helper()
		_, err := newSender(t, c).Send(ctx, message())
		var f *provider.Failure
		if !errors.As(err, &f) || f.Outcome != want.Outcome || f.Code != want.Code || f.OriginalCode != "" {
			t.Fatalf("Send: %+v, want %s %s", f, want.Outcome, want.Code)
		}
		return f
	}
	unavailable := provider.Failure{Outcome: provider.Park, Code: "SES_CREDENTIALS_UNAVAILABLE"}

	t.Run("no source", func(t *testing.T) {
		unreachable := provider.Failure{Outcome: provider.Retry, Code: "NETWORK_ERROR"}
		for endpoint, want := range map[string]provider.Failure{
			"": unavailable,
			"https://vpce-1.email.us-east-1.vpce.amazonaws.com": unavailable,
			// Emulators get dummy credentials, so the call reaches the dialer.
			"http://ses-sim:8005":    unreachable,
			"https://localhost:8005": unreachable,
			"https://[::1]:8005":     unreachable,
		} {
			c := ses.Config{Endpoint: endpoint}.WithDialer(func(context.Context, string, string) (net.Conn, error) {
				return nil, errors.New("no network in tests")
			})
			_ = fails(t, t.Context(), c, want)
		}
	})

	t.Run("refused by the credentials service", func(t *testing.T) {
		keeper := serve(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(403)
			io.WriteString(w, `<ErrorResponse><Error><Code>AccessDenied</Code><Message>not this pod</Message></Error></ErrorResponse>`)
		})(t)
		token := filepath.Join(t.TempDir(), "token")
		if err := os.WriteFile(token, []byte("token"), 0o600); err != nil {
			t.Fatal(err)
		}
		t.Setenv("AWS_WEB_IDENTITY_TOKEN_FILE", token)
		t.Setenv("AWS_ROLE_ARN", "arn:aws:iam::123456789012:role/mail")
		t.Setenv("AWS_ENDPOINT_URL_STS", keeper.url)
		b := newBackend(t)
		f := fails(t, t.Context(), ses.Config{Endpoint: b.server.URL}, unavailable)

		var ours, theirs *smithy.OperationError
		var said smithy.APIError
		if !errors.As(f.Err, &ours) || !errors.As(ours.Err, &theirs) || theirs.ServiceID != "STS" ||
			!errors.As(f.Err, &said) || said.ErrorCode() != "AccessDenied" {
			t.Errorf("the cause is not the refusal of another service: %v", f.Err)
		}
		if len(b.Received()) != 0 || keeper.seen.Load() != 1 {
			t.Error("the wrong server was asked")
		}
	})

	// The SDK continues to fetch for the next caller, so the server must be released.
	silentKeeper := func(t *testing.T) endpoint {
		release := make(chan struct{})
		keeper := serve(func(http.ResponseWriter, *http.Request) { <-release })(t)
		t.Cleanup(func() { close(release) })
		t.Setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", keeper.url)
		return keeper
	}

	t.Run("cancelled while they are fetched", func(t *testing.T) {
		keeper := silentKeeper(t)
		ctx := cancelWhen(t, func() bool { return keeper.seen.Load() > 0 })
		b := newBackend(t)
		_ = fails(t, ctx, ses.Config{Endpoint: b.server.URL}, provider.Failure{Outcome: provider.Unspent, Code: "SEND_CANCELLED"})
	})

	t.Run("the deadline passes while they are fetched", func(t *testing.T) {
		keeper := silentKeeper(t)
		ctx := lateContext{cancelWhen(t, func() bool { return keeper.seen.Load() > 0 })}
		b := newBackend(t)
		f := fails(t, ctx, ses.Config{Endpoint: b.server.URL}, provider.Failure{Outcome: provider.Retry, Code: "SES_TIMEOUT"})
		if f.Category != provider.TimeoutError || !f.Outage || len(b.Received()) != 0 {
			t.Errorf("%+v after %d requests", f, len(b.Received()))
		}
	})
}
