package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httputil"
	"net/url"
	"time"

	"email-gateway/scripts/chaos/balance"
	"email-gateway/scripts/local"
)

// newBalancer starts a load balancer in front of the apis for clients with one URL, such as SNS, whose
// subscription must outlive an api. It forwards each request to one of the apis. If that fails or times out, the
// response is 502, and SNS retries.
func newBalancer(apis []string) (*local.Server, error) {
	choice, forward := balance.New(apis, 0), make(map[string]http.Handler, len(apis))
	for _, api := range apis {
		target, err := url.Parse(api)
		if err != nil {
			return nil, fmt.Errorf("start load balancer: %w", err)
		}
		forward[api] = newForwarder(target, func(failed bool) { choice.Note(api, failed) })
	}
	return local.Serve("127.0.0.1:0", &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { forward[choice.Pick()].ServeHTTP(w, r) }),
	})
}

// newForwarder forwards to one api and reports whether it responded.
func newForwarder(target *url.URL, note func(failed bool)) *httputil.ReverseProxy {
	return &httputil.ReverseProxy{
		Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(target) },
		Transport: &http.Transport{MaxIdleConnsPerHost: 16, IdleConnTimeout: 30 * time.Second, ResponseHeaderTimeout: balance.Timeout},
		ModifyResponse: func(*http.Response) error {
			note(false)
			return nil
		},
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			note(!errors.Is(err, context.Canceled))
			w.WriteHeader(http.StatusBadGateway)
		},
		ErrorLog: log.New(io.Discard, "", 0), // links are cut in the middle of responses
	}
}
