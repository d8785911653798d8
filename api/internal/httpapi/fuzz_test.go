package httpapi_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"email-gateway/api/internal/httpapi"
	"email-gateway/shared/email"
	"email-gateway/shared/store/outbox"
)

// FuzzSend: for any body, the response is a 202 with an email that the worker accepts, or a 4xx of the
// contract.
func FuzzSend(f *testing.F) {
	f.Add(emailBody(nil))
	for _, r := range refusals("0199d0a8-5f6e-7c3a-9b1e-2f4a6c8e0d12", "x", "") {
		if len(r.body) < 4096 {
			f.Add(r.body)
		}
	}
	var composed outbox.NewEmail
	g := start(f, func(p *httpapi.Params) {
		p.Accepter = accepterFunc(func(_ context.Context, e outbox.NewEmail) error {
			composed = e
			return nil
		})
	})
	f.Fuzz(func(t *testing.T, body string) {
		request := httptest.NewRequest(http.MethodPost, "/v1/email/send", strings.NewReader(body))
		request.Header.Set("Content-Type", "application/json")
		request.Header.Set("X-API-Key", g.Key.String())
		recorder := httptest.NewRecorder()
		g.Handler.ServeHTTP(recorder, request)
		holdToContract(t, http.MethodPost, "/v1/email/send", reply{recorder.Code, recorder.Header(), recorder.Body.String()})
		switch {
		case recorder.Code == http.StatusAccepted:
			job := composed.Job
			job.Attempt, job.EnqueuedAt = 1, time.Now()
			if err := job.Validate(email.MaxAttempts); err != nil {
				t.Errorf("the stored job is invalid for the worker: %v", err)
			}
		case recorder.Code >= http.StatusInternalServerError:
			t.Errorf("%d %s", recorder.Code, recorder.Body)
		}
	})
}
