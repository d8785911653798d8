package e2e_test

import (
	"slices"
	"strings"
	"testing"
)

// verdict is what must become of an email whose address makes the simulator answer
// with a fault. "-x2" in the address means: twice, then it is accepted.
type verdict struct {
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
	// brakes: the answer is about the account, so it shuts the gate for all. Its email is
	// sent when the others are done, and one that is accepted after it opens the gate.
	brakes bool
}

const atMostOnce = "at_most_once"

var verdicts = []verdict{
	{fault: "", status: "SENT", attempts: 1, requests: 1},

	// An answer that says "accepted" and cannot be read: most likely taken, never sent again.
	{fault: "empty-object", status: "FAILED", code: "SES_RESPONSE_UNREADABLE", category: "TRANSIENT_ERROR", attempts: 1, requests: 1, unknown: true, brakes: true},
	{fault: "empty-body", status: "FAILED", code: "SES_RESPONSE_UNREADABLE", category: "TRANSIENT_ERROR", attempts: 1, requests: 1, unknown: true, brakes: true},
	{fault: "truncated", status: "FAILED", code: "SES_RESPONSE_UNREADABLE", category: "TRANSIENT_ERROR", attempts: 1, requests: 1, unknown: true, brakes: true},
	{fault: "html-200", status: "FAILED", code: "SES_RESPONSE_UNREADABLE", category: "TRANSIENT_ERROR", attempts: 1, requests: 1, unknown: true, brakes: true},

	// Refused for good.
	{fault: "identity-not-verified", status: "FAILED", code: "SES_IDENTITY_NOT_VERIFIED", category: "CONFIGURATION_ERROR", attempts: 1, requests: 1},
	{fault: "message-rejected", status: "FAILED", code: "SES_MESSAGE_REJECTED", category: "PERMANENT_ERROR", attempts: 1, requests: 1},
	{fault: "mail-from-not-verified", status: "FAILED", code: "SES_MAIL_FROM_DOMAIN_NOT_VERIFIED", category: "CONFIGURATION_ERROR", attempts: 1, requests: 1},
	{fault: "config-set-missing", status: "FAILED", code: "SES_CONFIGURATION_SET_DOES_NOT_EXIST", category: "CONFIGURATION_ERROR", attempts: 1, requests: 1},
	{fault: "config-set-missing-bad-request", status: "FAILED", code: "SES_CONFIGURATION_SET_DOES_NOT_EXIST", category: "CONFIGURATION_ERROR", attempts: 1, requests: 1},
	{fault: "resource-not-found", status: "FAILED", code: "SES_RESOURCE_NOT_FOUND", category: "CONFIGURATION_ERROR", attempts: 1, requests: 1},
	{fault: "bad-request", status: "FAILED", code: "SES_BAD_REQUEST", category: "PERMANENT_ERROR", attempts: 1, requests: 1},
	{fault: "account-suspended", status: "FAILED", code: "SES_ACCOUNT_SUSPENDED", category: "PERMANENT_ERROR", attempts: 1, requests: 1, brakes: true},
	{fault: "sending-paused", status: "FAILED", code: "SES_ACCOUNT_SENDING_PAUSED", category: "PERMANENT_ERROR", attempts: 1, requests: 1, brakes: true},
	{fault: "too-large", status: "FAILED", code: "SES_MESSAGE_TOO_LARGE", category: "PERMANENT_ERROR", attempts: 1, requests: 1},

	// A quota: waits, and costs no try. A spent daily quota shuts the gate: from then on
	// the email is its probe, and pays not even a throttle.
	{fault: "daily-quota-x2", status: "SENT", code: "SES_DAILY_QUOTA_EXCEEDED", category: "QUOTA_ERROR", attempts: 2, throttles: 1, requests: 3, brakes: true},
	{fault: "daily-quota-throttle-x1", status: "SENT", code: "SES_DAILY_QUOTA_EXCEEDED", category: "QUOTA_ERROR", attempts: 2, throttles: 1, requests: 2, brakes: true},
	{fault: "max-send-rate-x2", status: "SENT", code: "SES_MAX_SEND_RATE_EXCEEDED", category: "QUOTA_ERROR", attempts: 3, throttles: 2, requests: 3},
	{fault: "throttle-x7", status: "SENT", code: "SES_THROTTLING", category: "QUOTA_ERROR", attempts: 8, throttles: 7, requests: 8},
	{fault: "throttling-exception-x1", status: "SENT", code: "SES_THROTTLING", category: "QUOTA_ERROR", attempts: 2, throttles: 1, requests: 2},
	{fault: "plain-429-x1", status: "SENT", code: "SES_THROTTLING", category: "QUOTA_ERROR", attempts: 2, throttles: 1, requests: 2},

	// Certainly not taken: tried again, five times in all.
	{fault: "unavailable-json-x1", status: "SENT", code: "SES_SERVICE_UNAVAILABLE", category: "TRANSIENT_ERROR", attempts: 2, requests: 2},
	{fault: "unavailable-html", status: "FAILED", code: "SES_SERVICE_UNAVAILABLE", category: "TRANSIENT_ERROR", attempts: 5, requests: 5},
	{fault: "unavailable-empty-x4", status: "SENT", code: "SES_SERVICE_UNAVAILABLE", category: "TRANSIENT_ERROR", attempts: 5, requests: 5},
	{fault: "request-timeout-x1", status: "SENT", code: "SES_TIMEOUT", category: "TIMEOUT_ERROR", attempts: 2, requests: 2},

	// May have been taken: the policy decides, and the email says so.
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

	// Nothing is wrong with the email: back to the outbox, the try is given back.
	{fault: "expired-token-x1", status: "SENT", code: "SES_CREDENTIALS_EXPIRED", category: "CONFIGURATION_ERROR", attempts: 1, requests: 2, brakes: true},
	{fault: "unrecognized-client-x1", status: "SENT", code: "SES_AUTH_FAILED", category: "CONFIGURATION_ERROR", attempts: 1, requests: 2, brakes: true},
	{fault: "signature-mismatch-x1", status: "SENT", code: "SES_AUTH_FAILED", category: "CONFIGURATION_ERROR", attempts: 1, requests: 2, brakes: true},
	{fault: "access-denied-x1", status: "SENT", code: "SES_ACCESS_DENIED", category: "CONFIGURATION_ERROR", attempts: 1, requests: 2, brakes: true},
	{fault: "redirect-x1", status: "SENT", code: "SES_UNEXPECTED_RESPONSE", category: "CONFIGURATION_ERROR", attempts: 1, requests: 2, brakes: true},
	{fault: "not-found-html-x1", status: "SENT", code: "SES_UNEXPECTED_RESPONSE", category: "CONFIGURATION_ERROR", attempts: 1, requests: 2, brakes: true},
	{fault: "method-not-allowed-html-x1", status: "SENT", code: "SES_UNEXPECTED_RESPONSE", category: "CONFIGURATION_ERROR", attempts: 1, requests: 2, brakes: true},
}

// Every answer that SES can give leads where its verdict says, with as many
// requests as it says and not one more.
func TestVerdicts(t *testing.T) {
	t.Parallel()
	s := startSystem(t, map[string]string{
		"EMAIL_BACKOFF": "50ms", "WORKER_CONCURRENCY": "64",
	})
	ids := make([]string, len(verdicts))
	send := func(i int) {
		ids[i] = s.send(verdicts[i].address(i), func(body map[string]any) {
			if verdicts[i].delivery != "" {
				body["delivery"] = verdicts[i].delivery
			}
		})
	}
	check := func(i int) {
		v := verdicts[i]
		t.Run(v.fault+" "+v.delivery, func(t *testing.T) {
			got := s.await(ids[i], v.status)
			v.check(t, got, len(s.ses.Requests(ids[i])))
		})
	}
	for i, v := range verdicts {
		if !v.brakes {
			send(i)
		}
	}
	for i, v := range verdicts {
		if !v.brakes {
			check(i)
		}
	}
	for i, v := range verdicts {
		if v.brakes {
			send(i)
			check(i)
			s.await(s.send("ana@example.com", nil), "SENT")
		}
	}
}

// address keeps two emails of one fault apart.
func (v verdict) address(i int) string {
	domain := string(rune('a'+i/26)) + string(rune('a'+i%26)) + ".example"
	if v.fault == "" {
		return "ana@" + domain
	}
	return "sim-" + v.fault + "@" + domain
}

func (v verdict) check(t *testing.T, got emailView, requests int) {
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
