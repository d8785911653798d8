package e2e_test

import (
	"slices"
	"strings"
	"testing"
)

// outcome is the expected outcome of an email whose address makes the simulator answer with a fault. "-x2" in the
// address means: twice, then it is accepted.
type outcome struct {
	fault     string
	delivery  string // "" is at_least_once
	status    string
	code      string // of the last attempt that did not succeed
	category  string
	attempts  int
	throttles int
	requests  int
	unknown   bool // the outcome of an attempt was not known
	duplicate bool
	// opensBreaker: the response concerns the account, so it opens the circuit breaker for all. Its email is sent
	// after the others, and one that is accepted after it closes the circuit breaker.
	opensBreaker bool
}

const atMostOnce = "at_most_once"

var outcomes = []outcome{
	{fault: "", status: "SENT", attempts: 1, requests: 1},

	// An unreadable response with a success status: most likely accepted, never sent again.
	{fault: "empty-object", status: "FAILED", code: "SES_RESPONSE_UNREADABLE", category: "TRANSIENT_ERROR", attempts: 1, requests: 1, unknown: true, opensBreaker: true},
	{fault: "empty-body", status: "FAILED", code: "SES_RESPONSE_UNREADABLE", category: "TRANSIENT_ERROR", attempts: 1, requests: 1, unknown: true, opensBreaker: true},
	{fault: "truncated", status: "FAILED", code: "SES_RESPONSE_UNREADABLE", category: "TRANSIENT_ERROR", attempts: 1, requests: 1, unknown: true, opensBreaker: true},
	{fault: "html-200", status: "FAILED", code: "SES_RESPONSE_UNREADABLE", category: "TRANSIENT_ERROR", attempts: 1, requests: 1, unknown: true, opensBreaker: true},

	// Rejected permanently.
	{fault: "identity-not-verified", status: "FAILED", code: "SES_IDENTITY_NOT_VERIFIED", category: "CONFIGURATION_ERROR", attempts: 1, requests: 1},
	{fault: "message-rejected", status: "FAILED", code: "SES_MESSAGE_REJECTED", category: "PERMANENT_ERROR", attempts: 1, requests: 1},
	{fault: "mail-from-not-verified", status: "FAILED", code: "SES_MAIL_FROM_DOMAIN_NOT_VERIFIED", category: "CONFIGURATION_ERROR", attempts: 1, requests: 1},
	{fault: "config-set-missing", status: "FAILED", code: "SES_CONFIGURATION_SET_DOES_NOT_EXIST", category: "CONFIGURATION_ERROR", attempts: 1, requests: 1},
	{fault: "config-set-missing-bad-request", status: "FAILED", code: "SES_CONFIGURATION_SET_DOES_NOT_EXIST", category: "CONFIGURATION_ERROR", attempts: 1, requests: 1},
	{fault: "resource-not-found", status: "FAILED", code: "SES_RESOURCE_NOT_FOUND", category: "CONFIGURATION_ERROR", attempts: 1, requests: 1},
	{fault: "bad-request", status: "FAILED", code: "SES_BAD_REQUEST", category: "PERMANENT_ERROR", attempts: 1, requests: 1},
	{fault: "account-suspended", status: "FAILED", code: "SES_ACCOUNT_SUSPENDED", category: "PERMANENT_ERROR", attempts: 1, requests: 1, opensBreaker: true},
	{fault: "sending-paused", status: "FAILED", code: "SES_ACCOUNT_SENDING_PAUSED", category: "PERMANENT_ERROR", attempts: 1, requests: 1, opensBreaker: true},
	{fault: "too-large", status: "FAILED", code: "SES_MESSAGE_TOO_LARGE", category: "PERMANENT_ERROR", attempts: 1, requests: 1},

	// A quota: the email waits, and no try is spent. A spent daily quota opens the circuit breaker: from then on the
	// email is its probe, without another throttle.
	{fault: "daily-quota-x2", status: "SENT", code: "SES_DAILY_QUOTA_EXCEEDED", category: "QUOTA_ERROR", attempts: 2, throttles: 1, requests: 3, opensBreaker: true},
	{fault: "daily-quota-throttle-x1", status: "SENT", code: "SES_DAILY_QUOTA_EXCEEDED", category: "QUOTA_ERROR", attempts: 2, throttles: 1, requests: 2, opensBreaker: true},
	{fault: "max-send-rate-x2", status: "SENT", code: "SES_MAX_SEND_RATE_EXCEEDED", category: "QUOTA_ERROR", attempts: 3, throttles: 2, requests: 3},
	{fault: "throttle-x7", status: "SENT", code: "SES_THROTTLING", category: "QUOTA_ERROR", attempts: 8, throttles: 7, requests: 8},
	{fault: "throttling-exception-x1", status: "SENT", code: "SES_THROTTLING", category: "QUOTA_ERROR", attempts: 2, throttles: 1, requests: 2},
	{fault: "plain-429-x1", status: "SENT", code: "SES_THROTTLING", category: "QUOTA_ERROR", attempts: 2, throttles: 1, requests: 2},

	// Certainly not accepted: tried again, five times in all.
	{fault: "unavailable-json-x1", status: "SENT", code: "SES_SERVICE_UNAVAILABLE", category: "TRANSIENT_ERROR", attempts: 2, requests: 2},
	{fault: "request-timeout-x1", status: "SENT", code: "SES_TIMEOUT", category: "TIMEOUT_ERROR", attempts: 2, requests: 2},

	// May have been accepted: the policy decides, and the email is flagged. A 503 without SES's name may be that of a proxy
	// that has forwarded the email.
	{fault: "unavailable-html", status: "FAILED", code: "SES_SERVICE_UNAVAILABLE", category: "TRANSIENT_ERROR", attempts: 5, requests: 5, unknown: true, duplicate: true},
	{fault: "unavailable-empty-x4", status: "SENT", code: "SES_SERVICE_UNAVAILABLE", category: "TRANSIENT_ERROR", attempts: 5, requests: 5, unknown: true, duplicate: true},
	{fault: "internal-failure-x1", status: "SENT", code: "SES_INTERNAL_ERROR", category: "TRANSIENT_ERROR", attempts: 2, requests: 2, unknown: true, duplicate: true},
	{fault: "internal-failure-after-x1", status: "SENT", code: "SES_INTERNAL_ERROR", category: "TRANSIENT_ERROR", attempts: 2, requests: 2, unknown: true, duplicate: true},
	{fault: "bad-gateway-x1", status: "SENT", code: "SES_INTERNAL_ERROR", category: "TRANSIENT_ERROR", attempts: 2, requests: 2, unknown: true, duplicate: true},
	{fault: "gateway-timeout-x1", status: "SENT", code: "SES_INTERNAL_ERROR", category: "TRANSIENT_ERROR", attempts: 2, requests: 2, unknown: true, duplicate: true},
	{fault: "cut-before-x1", status: "SENT", code: "NETWORK_ERROR", category: "TRANSIENT_ERROR", attempts: 2, requests: 2, unknown: true, duplicate: true},
	{fault: "cut-after-x1", status: "SENT", code: "NETWORK_ERROR", category: "TRANSIENT_ERROR", attempts: 2, requests: 2, unknown: true, duplicate: true},
	{fault: "reset-after-x1", status: "SENT", code: "NETWORK_ERROR", category: "TRANSIENT_ERROR", attempts: 2, requests: 2, unknown: true, duplicate: true},
	{fault: "slow-x1", status: "SENT", code: "SES_TIMEOUT", category: "TIMEOUT_ERROR", attempts: 2, requests: 2, unknown: true, duplicate: true},
	{fault: "hang-x1", status: "SENT", code: "SES_TIMEOUT", category: "TIMEOUT_ERROR", attempts: 2, requests: 2, unknown: true, duplicate: true},
	{fault: "cut-after", delivery: atMostOnce, status: "FAILED", code: "OUTCOME_UNKNOWN", category: "TRANSIENT_ERROR", attempts: 1, requests: 1, unknown: true},
	{fault: "internal-failure", delivery: atMostOnce, status: "FAILED", code: "OUTCOME_UNKNOWN", category: "TRANSIENT_ERROR", attempts: 1, requests: 1, unknown: true},

	// The email is not the cause: it returns to the outbox, and the try is not counted.
	{fault: "expired-token-x1", status: "SENT", code: "SES_CREDENTIALS_EXPIRED", category: "CONFIGURATION_ERROR", attempts: 1, requests: 2, opensBreaker: true},
	{fault: "unrecognized-client-x1", status: "SENT", code: "SES_AUTH_FAILED", category: "CONFIGURATION_ERROR", attempts: 1, requests: 2, opensBreaker: true},
	{fault: "signature-mismatch-x1", status: "SENT", code: "SES_AUTH_FAILED", category: "CONFIGURATION_ERROR", attempts: 1, requests: 2, opensBreaker: true},
	{fault: "access-denied-x1", status: "SENT", code: "SES_ACCESS_DENIED", category: "CONFIGURATION_ERROR", attempts: 1, requests: 2, opensBreaker: true},
	{fault: "redirect-x1", status: "SENT", code: "SES_UNEXPECTED_RESPONSE", category: "CONFIGURATION_ERROR", attempts: 1, requests: 2, opensBreaker: true},
	{fault: "not-found-html-x1", status: "SENT", code: "SES_UNEXPECTED_RESPONSE", category: "CONFIGURATION_ERROR", attempts: 1, requests: 2, opensBreaker: true},
	{fault: "method-not-allowed-html-x1", status: "SENT", code: "SES_UNEXPECTED_RESPONSE", category: "CONFIGURATION_ERROR", attempts: 1, requests: 2, opensBreaker: true},
}

// Every response that SES can give leads to its documented outcome, with exactly as many requests.
func TestOutcomes(t *testing.T) {
	t.Parallel()
	s := startSystem(t, map[string]string{
		"EMAIL_BACKOFF": "50ms", "WORKER_CONCURRENCY": "64",
	})
	ids := make([]string, len(outcomes))
	send := func(i int) {
		ids[i] = s.send(outcomes[i].address(i), func(body map[string]any) {
			if outcomes[i].delivery != "" {
				body["delivery"] = outcomes[i].delivery
			}
		})
	}
	check := func(i int) {
		v := outcomes[i]
		t.Run(v.fault+" "+v.delivery, func(t *testing.T) {
			got := s.await(ids[i], v.status)
			v.check(t, got, len(s.ses.Requests(ids[i])))
		})
	}
	for i, v := range outcomes {
		if !v.opensBreaker {
			send(i)
		}
	}
	for i, v := range outcomes {
		if !v.opensBreaker {
			check(i)
		}
	}
	for i, v := range outcomes {
		if v.opensBreaker {
			send(i)
			check(i)
			s.await(s.send("ana@example.com", nil), "SENT")
		}
	}
}

// address makes a unique address for each email of a fault.
func (v outcome) address(i int) string {
	domain := string(rune('a'+i/26)) + string(rune('a'+i%26)) + ".example"
	if v.fault == "" {
		return "ana@" + domain
	}
	return "sim-" + v.fault + "@" + domain
}

func (v outcome) check(t *testing.T, got emailView, requests int) {
	t.Helper()
	if got.Attempts != v.attempts || got.Throttles != v.throttles || requests != v.requests {
		t.Errorf("attempts %d, throttles %d, requests %d; want %d, %d, %d",
			got.Attempts, got.Throttles, requests, v.attempts, v.throttles, v.requests)
	}
	if got.OutcomeUnknown != v.unknown || got.PossibleDuplicate != v.duplicate {
		t.Errorf("outcomeUnknown %v, possibleDuplicate %v; want %v, %v", got.OutcomeUnknown, got.PossibleDuplicate, v.unknown, v.duplicate)
	}
	code, category := "", ""
	for _, event := range got.Events {
		if slices.Contains([]string{"RETRY_SCHEDULED", "RELEASED", "FAILED"}, event.Type) {
			code, _ = event.Metadata["errorCode"].(string)
			category, _ = event.Metadata["errorCategory"].(string)
		}
	}
	if code != v.code || category != v.category {
		t.Errorf("code %s (%s), want %s (%s); timeline %s", code, category, v.code, v.category, strings.Join(got.timeline(), " "))
	}
	if v.unknown == (v.code != "SES_RESPONSE_UNREADABLE") && v.unknown != slices.Contains(got.timeline(), "OUTCOME_UNKNOWN") {
		t.Errorf("timeline %v, want OUTCOME_UNKNOWN in it: %v", got.timeline(), v.unknown)
	}
}
