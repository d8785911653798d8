package sns

import (
	"context"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"net/url"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"
)

const (
	// fetchTime limits a fetch; SNS waits 15 s for the response.
	fetchTime = 5 * time.Second
	// maxCertificate is about a dozen times the size of a certificate (bytes).
	maxCertificate = 64 << 10
	// maxCached is more than the number of regions.
	maxCached = 64
	// minKeyBits rejects keys that are too weak.
	minKeyBits = 2048
)

// certificates fetches and caches public keys. It is safe for concurrent use.
type certificates struct {
	client   *http.Client
	inFlight singleflight.Group
	limiter  *fetchLimiter // nil = none, in tests

	mu   sync.Mutex
	keys map[string]*cachedKey
}

type cachedKey struct {
	key         *rsa.PublicKey
	until, used time.Time
}

func newClient(transport http.RoundTripper) *http.Client {
	return &http.Client{
		Transport: transport, Timeout: fetchTime,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

func newCertificates(client *http.Client) *certificates {
	return &certificates{client: client, limiter: newFetchLimiter(), keys: map[string]*cachedKey{}}
}

// key returns the key of the certificate at a validated URL, from the cache or fetched. A fetch counts
// against the message's sender.
func (c *certificates) key(ctx context.Context, certificateURL string, sender netip.Addr, now time.Time) (*rsa.PublicKey, error) {
	if key := c.cached(certificateURL, now); key != nil {
		return key, nil
	}
	// The fetch is shared by all waiters and continues if the first one leaves.
	result := c.inFlight.DoChan(certificateURL, func() (any, error) { return c.fetch(context.WithoutCancel(ctx), certificateURL, sender, now) })
	select {
	case done := <-result:
		if done.Err != nil {
			return nil, done.Err
		}
		return c.keep(certificateURL, now, done.Val)
	case <-ctx.Done():
		return nil, fmt.Errorf("%w: %w", ErrUnreachable, ctx.Err())
	}
}

func (c *certificates) cached(certificateURL string, now time.Time) *rsa.PublicKey {
	c.mu.Lock()
	defer c.mu.Unlock()
	found := c.keys[certificateURL]
	if found == nil || now.After(found.until) {
		return nil
	}
	found.used = now
	return found.key
}

// keep caches a key, and evicts the least recently used one if there are too many.
func (c *certificates) keep(certificateURL string, now time.Time, fetched any) (*rsa.PublicKey, error) {
	found, ok := fetched.(*cachedKey)
	if !ok {
		return nil, fmt.Errorf("%w: no certificate was fetched", ErrUnreachable)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	found.used = now
	c.keys[certificateURL] = found
	for len(c.keys) > maxCached {
		oldest := certificateURL
		for name, k := range c.keys {
			if name != certificateURL && (oldest == certificateURL || k.used.Before(c.keys[oldest].used)) {
				oldest = name
			}
		}
		delete(c.keys, oldest)
	}
	return found.key, nil
}

func (c *certificates) fetch(ctx context.Context, certificateURL string, sender netip.Addr, now time.Time) (*cachedKey, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, certificateURL, nil)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrForged, err)
	}
	if c.limiter != nil && !c.limiter.allow(request.URL.Host, sender) {
		return nil, fmt.Errorf("%w: too many certificate requests", ErrUnreachable)
	}
	response, err := c.client.Do(request)
	if err != nil {
		return nil, fmt.Errorf("%w: fetch certificate: %w", ErrUnreachable, withoutURL(err))
	}
	defer response.Body.Close()
	switch {
	case response.StatusCode >= http.StatusInternalServerError || response.StatusCode == http.StatusTooManyRequests:
		return nil, fmt.Errorf("%w: fetch certificate: %s", ErrUnreachable, response.Status)
	case response.StatusCode != http.StatusOK:
		return nil, fmt.Errorf("%w: no certificate at this URL: %s", ErrForged, response.Status)
	}
	text, err := io.ReadAll(io.LimitReader(response.Body, maxCertificate+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("%w: fetch certificate: %w", ErrUnreachable, err)
	case len(text) > maxCertificate:
		return nil, fmt.Errorf("%w: the certificate is larger than %d bytes", ErrForged, maxCertificate)
	}
	found, err := readCertificate(text, now)
	if err != nil {
		return nil, fmt.Errorf("%w: the certificate %w", ErrForged, err)
	}
	return found, nil
}

// withoutURL returns the cause of a failed request: the URL of a confirmation contains a token.
func withoutURL(err error) error {
	var failed *url.Error
	if errors.As(err, &failed) {
		return failed.Err
	}
	return err
}

// readCertificate reads the key from a PEM file. SNS serves only the leaf certificate, without a chain
// to the system roots: the trust is based on the host that serves it.
func readCertificate(text []byte, now time.Time) (*cachedKey, error) {
	block, _ := pem.Decode(text)
	if block == nil || block.Type != "CERTIFICATE" {
		return nil, errors.New("is not in PEM")
	}
	certificate, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return nil, errors.New("cannot be read")
	}
	if now.Before(certificate.NotBefore) || now.After(certificate.NotAfter) {
		return nil, errors.New("is not valid now")
	}
	key, ok := certificate.PublicKey.(*rsa.PublicKey)
	if !ok || key.N.BitLen() < minKeyBits {
		return nil, errors.New("has no RSA key of 2048 bits or more")
	}
	return &cachedKey{key: key, until: certificate.NotAfter}, nil
}
