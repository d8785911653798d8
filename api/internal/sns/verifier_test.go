package sns_test

import (
	"context"
	"crypto/x509"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"email-gateway/api/internal/sns"
)

// verify parses and verifies a body.
func verify(ctx context.Context, v *sns.Verifier, body []byte) error {
	m, err := sns.Parse(body)
	if err != nil {
		return err
	}
	return v.Verify(ctx, m)
}

func TestVerify_Good(t *testing.T) {
	t.Parallel()
	a := newAmazon(t, nil)
	v := a.verifier(nil)
	subject, empty := "Amazon SES Email Event Notification", ""
	for _, version := range []string{"1", "2"} {
		for name, change := range map[string]func(*sns.Message){
			"plain":         func(*sns.Message) {},
			"subject":       func(m *sns.Message) { m.Subject = &subject },
			"empty subject": func(m *sns.Message) { m.Subject = &empty },
			"odd text":      func(m *sns.Message) { m.Message = "{\"a\":\"<&>\\u2028é𝄞\"}\n\nType\nx" },
			"confirmation":  func(m *sns.Message) { *m = confirmation() },
			"unsubscribed":  func(m *sns.Message) { *m = confirmation(); m.Type = sns.UnsubscribeConfirmation },
		} {
			m := notification()
			change(&m)
			m.SignatureVersion = version
			if err := verify(t.Context(), v, body(t, a.sign(t, m), nil)); err != nil {
				t.Errorf("%s, version %s: %v", name, version, err)
			}
		}
	}
	if requests := a.requests(); len(requests) != 1 {
		t.Errorf("the certificate was fetched %d times, want once: %v", len(requests), requests)
	}
}

// Any change after signing invalidates the message.
func TestVerify_Changed(t *testing.T) {
	t.Parallel()
	a := newAmazon(t, nil)
	v := a.verifier(nil)
	subject := "s"
	for _, signed := range []sns.Message{notification(), func() sns.Message { m := notification(); m.Subject = &subject; return m }(), confirmation()} {
		good := a.sign(t, signed)
		for name, change := range map[string]func(map[string]any){
			"message":           func(f map[string]any) { f["Message"] = `{"eventType":"Bounce"}` },
			"message id":        func(f map[string]any) { f["MessageId"] = "another" },
			"topic":             func(f map[string]any) { f["TopicArn"] = "arn:aws:sns:us-east-1:123456789012:other" },
			"time":              func(f map[string]any) { f["Timestamp"] = "2026-11-21T10:00:00.000Z" },
			"subject emptied":   func(f map[string]any) { f["Subject"] = "" },
			"subject added":     func(f map[string]any) { f["Subject"] = "another" },
			"version":           func(f map[string]any) { f["SignatureVersion"] = "1" },
			"unknown version":   func(f map[string]any) { f["SignatureVersion"] = "3" },
			"no version":        func(f map[string]any) { delete(f, "SignatureVersion") },
			"signature":         func(f map[string]any) { f["Signature"] = strings.Repeat("A", 344) },
			"signature cut":     func(f map[string]any) { f["Signature"] = good.Signature[:200] },
			"signature no text": func(f map[string]any) { f["Signature"] = "*" },
			"token":             func(f map[string]any) { f["Token"] = "another" },
			"subscribe URL":     func(f map[string]any) { f["SubscribeURL"] = "https://sns.us-east-1.amazonaws.com/?Action=other" },
		} {
			if signed.Type == sns.Notification && (name == "token" || name == "subscribe URL") || signed.Type != sns.Notification && strings.HasPrefix(name, "subject") {
				continue // not part of what is signed
			}
			if err := verify(t.Context(), v, body(t, good, change)); !errors.Is(err, sns.ErrForged) {
				t.Errorf("%s, %s: %v", signed.Type, name, err)
			}
		}
		if signed.Subject != nil {
			if err := verify(t.Context(), v, body(t, good, func(f map[string]any) { delete(f, "Subject") })); !errors.Is(err, sns.ErrForged) {
				t.Errorf("subject dropped: %v", err)
			}
		}
	}
}

// Nothing is fetched for a topic that is not configured, or from another host.
func TestVerify_FetchesNothingElse(t *testing.T) {
	t.Parallel()
	a := newAmazon(t, nil)
	for name, change := range map[string]struct {
		change func(*sns.Message)
		want   error
	}{
		"topic":           {func(m *sns.Message) { m.TopicARN = topic + "2" }, sns.ErrTopic},
		"topic's case":    {func(m *sns.Message) { m.TopicARN = strings.ToUpper(topic) }, sns.ErrTopic},
		"host":            {func(m *sns.Message) { m.SigningCertURL = "https://attacker.example/a.pem" }, sns.ErrForged},
		"version":         {func(m *sns.Message) { m.SignatureVersion = "0" }, sns.ErrForged},
		"a bucket":        {func(m *sns.Message) { m.SigningCertURL = "https://sns.s3-us-west-2.amazonaws.com/evil.pem" }, sns.ErrForged},
		"another region":  {func(m *sns.Message) { m.SigningCertURL = strings.Replace(certPath, "us-east-1", "us-west-2", 1) }, sns.ErrForged},
		"trusted not set": {func(m *sns.Message) { m.SigningCertURL = "http://127.0.0.1:8005/a.pem" }, sns.ErrForged},
	} {
		m := notification()
		change.change(&m)
		if err := a.verifier(nil).Verify(t.Context(), a.sign(t, m)); !errors.Is(err, change.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := sns.NewVerifier(sns.Params{}, a).Verify(t.Context(), a.sign(t, notification())); !errors.Is(err, sns.ErrTopic) {
		t.Errorf("no topics: %v", err)
	}
	if requests := a.requests(); len(requests) != 0 {
		t.Errorf("fetched %v, want no request", requests)
	}
}

func TestVerify_Version2Only(t *testing.T) {
	t.Parallel()
	a := newAmazon(t, nil)
	v := a.verifier(func(p *sns.Params) { p.SHA256Only = true })
	m := notification()
	if err := v.Verify(t.Context(), parsed(t, a.sign(t, m))); err != nil {
		t.Errorf("version 2: %v", err)
	}
	m.SignatureVersion = "1"
	if err := v.Verify(t.Context(), parsed(t, a.sign(t, m))); !errors.Is(err, sns.ErrForged) || !strings.Contains(err.Error(), "SignatureVersion to 2") {
		t.Errorf("version 1: %v", err)
	}
}

func parsed(tb testing.TB, m sns.Message) sns.Message {
	tb.Helper()
	got, err := sns.Parse(body(tb, m, nil))
	if err != nil {
		tb.Fatal(err)
	}
	return got
}

func TestVerify_Stale(t *testing.T) {
	t.Parallel()
	a := newAmazon(t, func(c *x509.Certificate) { c.NotAfter = time.Now().Add(100 * 24 * time.Hour) })
	m := parsed(t, a.sign(t, notification()))
	for after, want := range map[time.Duration]error{0: nil, 20 * 24 * time.Hour: nil, 22 * 24 * time.Hour: sns.ErrStale} {
		if err := a.verifier(nil).At(time.Now().Add(after)).Verify(t.Context(), m); !errors.Is(err, want) {
			t.Errorf("after %s: %v", after, err)
		}
	}
}

// With a trusted URL everything is fetched below it, and nothing from Amazon.
func TestVerify_Trusted(t *testing.T) {
	t.Parallel()
	a := newAmazon(t, nil)
	requests := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests++
		if strings.HasSuffix(r.URL.Path, ".pem") {
			w.Write(a.pem)
		}
	}))
	t.Cleanup(server.Close)
	base, err := url.Parse(server.URL + "/sim")
	if err != nil {
		t.Fatal(err)
	}
	v := sns.New(sns.Params{Topics: []string{topic}, Trusted: base})
	for certificateURL, good := range map[string]bool{
		server.URL + "/sim/a.pem":                         true,
		server.URL + "/sim/sns/a.pem":                     true,
		server.URL + "/a.pem":                             false,
		server.URL + "/simx/a.pem":                        false,
		server.URL + "/sim/../a.pem":                      false,
		server.URL + "/sim/%2e%2e/a.pem":                  false,
		server.URL + "/sim/a.pem?b":                       false,
		server.URL + "/sim/a":                             false,
		server.URL + ".attacker.example/sim/a.pem":        false,
		"http://attacker.example/sim/a.pem":               false,
		"https" + server.URL[len("http"):] + "/sim/a.pem": false,
		certPath: false,
	} {
		m := notification()
		m.SigningCertURL = certificateURL
		if err := v.Verify(t.Context(), parsed(t, a.sign(t, m))); (err == nil) != good {
			t.Errorf("%s: %v", certificateURL, err)
		}
	}
	m := confirmation()
	m.SubscribeURL = server.URL + "/sim/confirm?Token=1"
	before := requests
	if err := v.Confirm(t.Context(), m); err != nil || requests != before+1 {
		t.Errorf("Confirm = %v with %d requests, want 1", err, requests-before)
	}
}
