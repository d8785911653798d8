package webhooks

import (
	"fmt"
	"net/http"
	"time"

	"email-gateway/api/internal/httpapi/problem"
	"email-gateway/shared/store/webhook"
)

// Problems of requests about webhook endpoints.
var (
	noSuchEndpoint     = problem.Problem{Status: http.StatusNotFound, Code: "NOT_FOUND", Detail: "there is no such webhook endpoint"}
	keyReused          = problem.Problem{Status: http.StatusUnprocessableEntity, Code: "IDEMPOTENCY_KEY_REUSED", Detail: "a webhook endpoint was created with this Idempotency-Key and a different body: use a new key for a new endpoint"}
	noSuchDelivery     = problem.Problem{Status: http.StatusNotFound, Code: "NOT_FOUND", Detail: "the webhook endpoint has no such delivery: only failed deliveries and tests are stored"}
	noSuchReplay       = problem.Problem{Status: http.StatusNotFound, Code: "NOT_FOUND", Detail: "the webhook endpoint has no such replay"}
	tooManyEndpoints   = problem.Problem{Status: http.StatusConflict, Code: "TOO_MANY_WEBHOOKS", Detail: fmt.Sprintf("the company has %d webhook endpoints, which is the maximum: delete one first", webhook.MaxEndpoints)}
	tooManyReplays     = problem.Problem{Status: http.StatusTooManyRequests, Code: "TOO_MANY_REPLAYS", Detail: fmt.Sprintf("%d replays of the webhook endpoint are in progress, which is the maximum: repeat the request when one has finished", webhook.MaxReplays), RetryAfter: 10 * time.Second}
	disabled           = problem.Problem{Status: http.StatusConflict, Code: "WEBHOOK_DISABLED", Detail: "the webhook endpoint is disabled: enable it first"}
	deleting           = problem.Problem{Status: http.StatusConflict, Code: "WEBHOOK_BUSY", Detail: "the webhook endpoint is disabled, and not all of its stored deliveries are deleted yet: repeat the request after Retry-After", RetryAfter: time.Second}
	disabledByOperator = problem.Problem{Status: http.StatusConflict, Code: "WEBHOOK_DISABLED", Detail: "an operator has disabled the webhook endpoint: ask the operator of the gateway"}
)
