package client

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// maxProblem limits an error response (bytes): one of a batch may have some thousand faults.
const maxProblem = 8 << 20

// Problem is an error response (RFC 9457), returned as an error.
type Problem struct {
	Status     int           `json:"status"`
	Code       string        `json:"code"` // "" if the response is not from the gateway
	Detail     string        `json:"detail"`
	RequestID  string        `json:"requestId"`
	Faults     []Fault       `json:"errors"`
	RetryAfter time.Duration `json:"-"`

	// Of QUOTA_EXCEEDED:
	Quota string     `json:"quota"`
	Limit int64      `json:"limit"`
	Use   int64      `json:"use"`
	Reset *time.Time `json:"reset"`
}

// Fault is one invalid field of a request.
type Fault struct {
	Field   string `json:"field"`
	Code    string `json:"code"`
	Message string `json:"message"`
}

// Error formats the problem with one line per invalid field.
func (p *Problem) Error() string {
	if p.Code == "" {
		return fmt.Sprintf("the response has HTTP status %d and is not from the gateway: check API_URL", p.Status)
	}
	text := p.Code + ": " + p.Detail
	if len(p.Faults) > 1 || len(p.Faults) == 1 && !strings.Contains(p.Detail, p.Faults[0].Message) {
		for _, f := range p.Faults {
			text += fmt.Sprintf("\n  %s %s (%s)", f.Field, f.Message, f.Code)
		}
	}
	if p.Status >= http.StatusInternalServerError {
		text += " [request " + p.RequestID + "]" // to find it in the log
	}
	return text
}

func readProblem(answer *http.Response) error {
	text, err := io.ReadAll(io.LimitReader(answer.Body, maxProblem))
	if err != nil {
		return unreachable(answer.Request.URL.Host, fmt.Errorf("read answer: %w", err))
	}
	p := Problem{Status: answer.StatusCode, RetryAfter: retryAfter(answer.Header)}
	if json.Unmarshal(text, &p) != nil || p.RequestID == "" {
		p.Code = ""
	}
	p.Status = answer.StatusCode
	return &p
}

// UnreachableError is returned if there was no response.
type UnreachableError struct {
	Address string
	// Began reports that the api may have received the request, so it may have been processed.
	Began bool
	cause error
}

func (e *UnreachableError) Error() string {
	return fmt.Sprintf("%s does not answer: %v", e.Address, e.cause)
}

func (e *UnreachableError) Unwrap() error { return e.cause }

func unreachable(address string, err error) *UnreachableError {
	var op *net.OpError
	var in *url.Error
	if errors.As(err, &in) {
		err = in.Err // without method and URL
	}
	began := !errors.As(err, &op) || op.Op != "dial"
	return &UnreachableError{Address: address, Began: began, cause: err}
}

// UnknownError is returned for a request that changes something if one of its tries may have been processed.
type UnknownError struct {
	IdempotencyKey string // "" = none; with it, the request can be repeated without being processed twice
	err            error  // of the last try
}

func (e *UnknownError) Error() string { return e.err.Error() }

func (e *UnknownError) Unwrap() error { return e.err }

// asUnknown makes the error of a single try an UnknownError if the api may have processed it.
func asUnknown(err error, once string) error {
	if mayBeProcessed(err) {
		return &UnknownError{IdempotencyKey: once, err: err}
	}
	return err
}

// mayBeProcessed reports whether the api may have processed the request although it failed with the error.
func mayBeProcessed(err error) bool {
	var silent *UnreachableError
	var refused *Problem
	return errors.As(err, &silent) && silent.Began ||
		errors.As(err, &refused) && (refused.Code == "ACCEPT_UNKNOWN" || refused.Status == http.StatusInternalServerError || refused.byProxy())
}

// byProxy reports whether a proxy in front of the api answered, which may have got no answer from it. Envoy reports that with
// 503 and Cloudflare with 520 to 524, which both also have other causes.
func (p *Problem) byProxy() bool {
	return p.Code == "" && p.Status >= http.StatusInternalServerError
}

// passes reports whether the same request may be accepted soon.
func (p *Problem) passes() bool {
	return p.Code != "QUOTA_EXCEEDED" && (p.RetryAfter > 0 || p.Status == http.StatusTooManyRequests || p.proxyPasses())
}

// proxyPasses reports whether a proxy answered with a status that mostly means that the api is being restarted. Others
// may last, such as those of a wrong API_URL.
func (p *Problem) proxyPasses() bool {
	return p.byProxy() && p.Status >= http.StatusBadGateway && p.Status <= http.StatusGatewayTimeout
}
