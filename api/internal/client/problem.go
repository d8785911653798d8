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

// Problem is an answer that refuses, as the contract writes it (RFC 9457). It is
// returned as an error.
type Problem struct {
	Status     int           `json:"status"`
	Code       string        `json:"code"` // "" when it was not the gateway that answered
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

// Fault is one wrong field of a request.
type Fault struct {
	Field   string `json:"field"`
	Code    string `json:"code"`
	Message string `json:"message"`
}

// Error is all that the api said, a wrong field per line.
func (p *Problem) Error() string {
	if p.Code == "" {
		return fmt.Sprintf("the answer is HTTP status %d, and not the gateway's: is API_URL right?", p.Status)
	}
	text := p.Code + ": " + p.Detail
	if len(p.Faults) > 1 || len(p.Faults) == 1 && !strings.Contains(p.Detail, p.Faults[0].Message) {
		for _, f := range p.Faults {
			text += fmt.Sprintf("\n  %s %s (%s)", f.Field, f.Message, f.Code)
		}
	}
	if p.Status >= http.StatusInternalServerError {
		text += " [request " + p.RequestID + "]" // its log knows more
	}
	return text
}

func readProblem(answer *http.Response) error {
	text, err := io.ReadAll(io.LimitReader(answer.Body, 1<<20))
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

// UnreachableError says that a request was not answered.
type UnreachableError struct {
	Address string
	// Began says that the api may have got the request, so that it may have been done.
	Began bool
	cause error
}

func (e *UnreachableError) Error() string {
	return fmt.Sprintf("%s does not answer: %v", e.Address, e.cause)
}

func (e *UnreachableError) Unwrap() error { return e.cause }

func unreachable(address string, err error) error {
	var op *net.OpError
	var in *url.Error
	if errors.As(err, &in) {
		err = in.Err // it would say method and URL once more
	}
	began := !errors.As(err, &op) || op.Op != "dial"
	return &UnreachableError{Address: address, Began: began, cause: err}
}
