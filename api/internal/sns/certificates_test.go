package sns_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"testing"
	"time"

	"email-gateway/api/internal/sns"
)

func TestVerify_BadCertificates(t *testing.T) {
	t.Parallel()
	weak, err := rsa.GenerateKey(rand.Reader, 1024)
	if err != nil {
		t.Fatal(err)
	}
	curve, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	another, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	good := newAmazon(t, nil).pem
	for name, tt := range map[string]struct {
		status int // 0 = there is no network
		text   []byte
		want   error
	}{
		"run out":      {200, certificateOf(t, signingKey(), &signingKey().PublicKey, func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Minute) }), sns.ErrForged},
		"not yet":      {200, certificateOf(t, signingKey(), &signingKey().PublicKey, func(c *x509.Certificate) { c.NotBefore = time.Now().Add(time.Minute) }), sns.ErrForged},
		"another key":  {200, certificateOf(t, another, &another.PublicKey, nil), sns.ErrForged},
		"weak key":     {200, certificateOf(t, weak, &weak.PublicKey, nil), sns.ErrForged},
		"no RSA":       {200, certificateOf(t, curve, &curve.PublicKey, nil), sns.ErrForged},
		"no PEM":       {200, []byte("<html>"), sns.ErrForged},
		"no DER":       {200, []byte("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"), sns.ErrForged},
		"endless":      {200, append(bytes.Repeat([]byte("\n"), 64<<10), good...), sns.ErrForged},
		"not there":    {404, good, sns.ErrForged},
		"moved":        {302, good, sns.ErrForged},
		"out of order": {503, good, sns.ErrUnreachable},
		"too many":     {429, good, sns.ErrUnreachable},
		"no network":   {0, nil, sns.ErrUnreachable},
	} {
		a := newAmazon(t, nil)
		a.answer = func(*http.Request) (*http.Response, error) {
			if tt.status == 0 {
				return nil, errors.New("no route")
			}
			answer := reply(tt.status, tt.text)
			answer.Header.Set("Location", certPath+".pem")
			return answer, nil
		}
		v := a.verifier(nil)
		m := parsed(t, a.sign(t, notification()))
		if err := v.Verify(t.Context(), m); !errors.Is(err, tt.want) {
			t.Errorf("%s: %v", name, err)
		}
		if asked := a.requests(); len(asked) != 1 {
			t.Errorf("%s: fetched %v, want 1 request", name, asked)
		}
		a.mu.Lock()
		a.answer = nil
		a.mu.Unlock()
		if name != "another key" { // its certificate is valid, so its key is cached
			if err := v.Verify(t.Context(), m); err != nil {
				t.Errorf("%s, after the certificate was corrected: %v", name, err)
			}
		}
	}
}

// A key is cached until its certificate expires; then a certificate is fetched again.
func TestVerify_FetchesAgainAfterExpiry(t *testing.T) {
	t.Parallel()
	a := newAmazon(t, nil)
	v := a.verifier(nil)
	m := parsed(t, a.sign(t, notification()))
	if err := v.Verify(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	later := time.Now().Add(2 * time.Hour)
	if err := v.At(later).Verify(t.Context(), m); !errors.Is(err, sns.ErrForged) {
		t.Errorf("with the first certificate: %v", err)
	}
	a.pem = certificateOf(t, a.key, &a.key.PublicKey, func(c *x509.Certificate) { c.NotAfter = later.Add(time.Hour) })
	if err := v.Verify(t.Context(), m); err != nil {
		t.Errorf("after the first certificate expired: %v", err)
	}
}

// Concurrent messages share one fetch, which continues if one of them is cancelled.
func TestVerify_SingleFlight(t *testing.T) {
	t.Parallel()
	a := newAmazon(t, nil)
	a.waiting = make(chan struct{})
	v := a.verifier(nil)
	m := parsed(t, a.sign(t, notification()))
	leaving, leave := context.WithCancel(t.Context())
	const others = 20
	results := make(chan error, others)
	left := make(chan error, 1)
	go func() { left <- v.Verify(leaving, m) }()
	for range others {
		go func() { results <- v.Verify(t.Context(), m) }()
	}
	leave()
	if err := <-left; !errors.Is(err, sns.ErrUnreachable) {
		t.Errorf("the cancelled call returned %v, want ErrUnreachable", err)
	}
	close(a.waiting)
	for range others {
		if err := <-results; err != nil {
			t.Error(err)
		}
	}
	if n := len(a.requests()); n > 2 { // two if the first call is cancelled before the others begin
		t.Errorf("%d fetches", n)
	}
}

// Invented certificate names use neither memory nor more than a few fetches.
func TestVerify_InventedCertificateURLs(t *testing.T) {
	t.Parallel()
	a := newAmazon(t, nil)
	v, paced := a.verifier(nil).Unpaced(), a.verifier(nil)
	busy := 0
	for n := range 200 {
		m := notification()
		m.SigningCertURL = fmt.Sprintf("https://sns.us-east-1.amazonaws.com/SimpleNotificationService-%x.pem", n)
		m = parsed(t, a.sign(t, m))
		if err := v.Verify(t.Context(), m); err != nil {
			t.Fatal(err)
		}
		if errors.Is(paced.Verify(t.Context(), m), sns.ErrUnreachable) {
			busy++
		}
	}
	if v.Cached() > 64 || busy < 150 {
		t.Errorf("%d keys kept, %d fetches refused", v.Cached(), busy)
	}
}

// A sender of invented certificate names uses up its own fetches, but not those of other senders or hosts.
func TestVerify_FetchesOfEachSender(t *testing.T) {
	t.Parallel()
	a := newAmazon(t, nil)
	v := a.verifier(nil)
	send := func(sender string, change func(*sns.Message)) error {
		m := notification()
		change(&m)
		m = parsed(t, a.sign(t, m))
		m.Sender = netip.MustParseAddr(sender)
		return v.Verify(t.Context(), m)
	}
	for sender := range 3 {
		refused := 0
		for n := range 100 {
			err := send(fmt.Sprintf("203.0.113.%d", sender), func(m *sns.Message) {
				m.SigningCertURL = fmt.Sprintf("https://sns.us-east-1.amazonaws.com/SimpleNotificationService-%x%02x.pem", sender+1, n)
			})
			if errors.Is(err, sns.ErrUnreachable) {
				refused++
			}
		}
		if refused < 50 {
			t.Errorf("%d of 100 fetches of sender %d were refused", refused, sender)
		}
	}
	if err := send("203.0.113.200", func(*sns.Message) {}); err != nil {
		t.Errorf("SNS's own message: %v", err)
	}
}

// Senders that use up the fetches of one host do not affect other hosts.
func TestVerify_FetchesOfEachHost(t *testing.T) {
	t.Parallel()
	a := newAmazon(t, nil)
	v := a.verifier(func(p *sns.Params) { p.Topics = append(p.Topics, regional("aws", "eu-west-1")) })
	refused := 0
	for n := range 400 {
		m := notification()
		m.SigningCertURL = fmt.Sprintf("https://sns.us-east-1.amazonaws.com/SimpleNotificationService-%x.pem", n)
		m = parsed(t, a.sign(t, m))
		m.Sender = netip.AddrFrom4([4]byte{203, 0, 113, byte(n % 200)})
		if errors.Is(v.Verify(t.Context(), m), sns.ErrUnreachable) {
			refused++
		}
	}
	m := notification()
	m.TopicARN = regional("aws", "eu-west-1")
	m.SigningCertURL = "https://sns.eu-west-1.amazonaws.com/SimpleNotificationService-0123.pem"
	m = parsed(t, a.sign(t, m))
	m.Sender = netip.MustParseAddr("203.0.113.1")
	if err := v.Verify(t.Context(), m); err != nil || refused == 0 {
		t.Errorf("%v, after %d fetches of the other host were refused", err, refused)
	}
}
