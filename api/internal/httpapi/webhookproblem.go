package httpapi

import (
	"fmt"
	"net/http"
	"time"

	"email-gateway/shared/store/webhook"
)

// Problems of requests about webhook endpoints.
var (
	noSuchWebhook         = problem{status: http.StatusNotFound, code: "NOT_FOUND", detail: "there is no such webhook endpoint"}
	noSuchWebhookDelivery = problem{status: http.StatusNotFound, code: "NOT_FOUND", detail: "the webhook endpoint has no such delivery: only failed deliveries and tests are stored"}
	noSuchWebhookReplay   = problem{status: http.StatusNotFound, code: "NOT_FOUND", detail: "the webhook endpoint has no such replay"}
	tooManyWebhooks       = problem{status: http.StatusConflict, code: "TOO_MANY_WEBHOOKS", detail: fmt.Sprintf("the company has %d webhook endpoints, which is the maximum: delete one first", webhook.MaxEndpoints)}
	tooManyWebhookReplays = problem{status: http.StatusTooManyRequests, code: "TOO_MANY_REPLAYS", detail: fmt.Sprintf("%d replays of the webhook endpoint are running: repeat the request when one has finished", webhook.MaxReplays), retryAfter: 10 * time.Second}
	webhookDisabled       = problem{status: http.StatusConflict, code: "WEBHOOK_DISABLED", detail: "the webhook endpoint is disabled: enable it first"}
	webhookDisabledByUs   = problem{status: http.StatusConflict, code: "WEBHOOK_DISABLED", detail: "an operator has disabled the webhook endpoint: ask the operator of the gateway"}
)
