package problem

import (
	"fmt"
	"net/http"
	"time"

	"email-gateway/shared/store/mailing"
	"email-gateway/shared/store/quota"
)

// QuotaUse describes the quota that is used up.
type QuotaUse struct {
	Quota quota.Quota `json:"quota"`
	Limit int64       `json:"limit"`
	Use   int64       `json:"use"`
	Reset *time.Time  `json:"reset"` // null = when objects are deleted or finish
}

// QuotaExceeded sets Retry-After to the reset of a daily quota.
func QuotaExceeded(e *quota.Error) Problem {
	p := Problem{
		Status: http.StatusTooManyRequests, Code: CodeQuotaExceeded,
		Detail:     fmt.Sprintf("the company's quota %s would be exceeded: its limit is %d, %d are in use", e.Quota, e.Limit, e.Use),
		RetryAfter: time.Minute,
		Quota:      &QuotaUse{Quota: e.Quota, Limit: e.Limit, Use: e.Use, Reset: e.Reset},
	}
	if e.Reset != nil {
		p.Detail += "; it resets at " + e.Reset.Format(time.RFC3339)
		p.RetryAfter = max(time.Until(*e.Reset), time.Second)
	}
	return p
}

// mailingsPaused answers a request that would set a mailing going. A tenant cannot end the pause.
func mailingsPaused(refused *mailing.PausedError) Problem {
	return Problem{Status: http.StatusConflict, Code: "MAILINGS_PAUSED", Detail: fmt.Sprintf(
		"all mailings of the company are paused since %s, because too many of its emails bounced or drew complaints (see the event MAILINGS_PAUSED in /v1/events); the operator of this service can resume them",
		refused.Since.UTC().Format(time.RFC3339))}
}
