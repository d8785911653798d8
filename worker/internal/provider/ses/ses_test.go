package ses_test

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"email-gateway/worker/internal/provider"
	"email-gateway/worker/internal/provider/ses"
)

func TestNewRejectsInvalidConfig(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]ses.Config{
		"no region":               {},
		"a region with a space":   {Region: "us-east-1 "},
		"an endpoint as a host":   {Region: "us-east-1", Endpoint: "127.0.0.1:8005"},
		"an endpoint of ftp":      {Region: "us-east-1", Endpoint: "ftp://127.0.0.1"},
		"an endpoint with a typo": {Region: "us-east-1", Endpoint: "http://127.0.0.1:80o5"},
		"negative concurrency":    {Region: "us-east-1", Concurrency: -1},
	} {
		if _, err := ses.New(t.Context(), c); err == nil {
			t.Errorf("New accepts %s", name)
		}
	}
}

func TestRequest(t *testing.T) {
	t.Parallel()
	b := newBackend(t)
	m := message()
	m.From = `"Café\\São João" <pedidos@café.com.br>`
	m.To, m.CC, m.ReplyTo = "maria@bücher.example", []string{"Ana@A_B.example"}, "sac@CAFÉ.com.br"
	m.Headers = map[string]string{"X-C": "3", "X-A": "1", "X-B": "2"}
	m.CompanyID, m.InstallationID = "", ""
	if _, err := newSender(t, ses.Config{Endpoint: b.server.URL, ConfigurationSet: "news"}).Send(t.Context(), m); err != nil {
		t.Fatalf("Send: %v", err)
	}
	got, header := b.last()

	want := request{
		ConfigurationSetName: "news",
		FromEmailAddress:     `=?utf-8?b?Q2Fmw6lcU8OjbyBKb8Ojbw==?= <pedidos@xn--caf-dma.com.br>`,
		ReplyToAddresses:     []string{"sac@xn--caf-dma.com.br"},
		EmailTags:            []pair{{"outbox_id", "outbox-1"}, {"attempt_id", "attempt-1"}},
	}
	want.Destination.ToAddresses = []string{"maria@xn--bcher-kva.example"}
	want.Destination.CcAddresses = []string{"Ana@A_B.example"}
	want.Content.Simple.Subject = content{"Olá", "UTF-8"}
	want.Content.Simple.Body.Html = &content{"<p>Olá</p>", "UTF-8"}
	want.Content.Simple.Headers = []pair{{"X-A", "1"}, {"X-B", "2"}, {"X-C", "3"}}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("request (-want +got):\n%s", d)
	}
	if found := keys(header, func(name string) bool { return strings.Contains(name, "Idempotency") }); found != nil {
		t.Errorf("headers %v would let HTTP replay the request", found)
	}
	if !strings.HasPrefix(header.Get("Authorization"), "AWS4-HMAC-SHA256 Credential=") {
		t.Error("the request is not signed")
	}
}

// What a worker reports of its settings has no password.
func TestAccess(t *testing.T) {
	t.Parallel()
	s := newSender(t, ses.Config{Region: "sa-east-1", Endpoint: "https://gateway:hunter2@vpce-1.example:443/ses", ConfigurationSet: "feedback"})
	want := map[string]any{"region": "sa-east-1", "endpoint": "vpce-1.example:443", "configurationSet": "feedback", "sandbox": false, "review": ""}
	if diff := cmp.Diff(want, s.Access()); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func TestUnusableAddresses(t *testing.T) {
	t.Parallel()
	b := newBackend(t)
	s := newSender(t, ses.Config{Endpoint: b.server.URL})
	for name, change := range map[string]func(*provider.Message){
		"from":     func(m *provider.Message) { m.From = "Loja <pedidos@>" },
		"to":       func(m *provider.Message) { m.To = "" },
		"cc":       func(m *provider.Message) { m.CC = []string{"a@b.example", "@b.example"} },
		"bcc":      func(m *provider.Message) { m.BCC = []string{"a@-ç.example"} },
		"reply-to": func(m *provider.Message) { m.ReplyTo = "sac@" },
	} {
		m := message()
		change(&m)
		_, err := s.Send(t.Context(), m)
		var f *provider.Failure
		if !errors.As(err, &f) || f.Outcome != provider.Failed || f.Code != "SES_INVALID_REQUEST" {
			t.Errorf("unusable %s: %v", name, err)
		} else if !strings.HasPrefix(f.Reason, name+": ") {
			t.Errorf("unusable %s: reason %q does not name it", name, f.Reason)
		}
	}
	if n := len(b.Received()); n != 0 {
		t.Errorf("%d requests were sent", n)
	}
}

// SES's message is kept unchanged; without one the reason is still helpful.
func TestReason(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		at   func(*testing.T) endpoint
		want string
	}{
		"SES's text": {refuses(400, "MessageRejected", "Address blacklisted."), "Address blacklisted."},
		"a page":     {says(503, page), "HTTP 503: deserialization failed"},
		"no answer":  {closed, "connection refused"},
	} {
		_, err := newSender(t, ses.Config{Endpoint: c.at(t).url}).Send(t.Context(), message())
		var f *provider.Failure
		if !errors.As(err, &f) || !strings.Contains(f.Reason, c.want) || strings.Contains(f.Reason, "StatusCode") {
			t.Errorf("%s: reason of %v, want %q", name, err, c.want)
		}
	}
}

// A clock skew of an hour parks one call: the next one is signed correctly.
func TestClockSkewIsCorrected(t *testing.T) {
	t.Parallel()
	ahead := time.Now().Add(time.Hour)
	e := serve(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Date", ahead.UTC().Format(http.TimeFormat))
		signed, err := time.Parse("20060102T150405Z", r.Header.Get("X-Amz-Date"))
		if err != nil || signed.Sub(ahead).Abs() > 15*time.Minute {
			refuse(w, 403, "InvalidSignatureException", "Signature expired.")
			return
		}
		io.WriteString(w, `{"MessageId":"0100-a"}`)
	})(t)
	s := newSender(t, ses.Config{Endpoint: e.url})
	_, err := s.Send(t.Context(), message())
	var f *provider.Failure
	if !errors.As(err, &f) || f.Outcome != provider.Park || f.Code != "SES_AUTH_FAILED" {
		t.Fatalf("first Send: %v, want it parked", err)
	}
	if _, err := s.Send(t.Context(), message()); err != nil {
		t.Fatalf("second Send: %v", err)
	}
	if n := e.seen.Load(); n != 2 {
		t.Errorf("the server saw %d requests, want 2", n)
	}
}
