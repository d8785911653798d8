package ses_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"email-gateway/worker/internal/provider"
	"email-gateway/worker/internal/provider/ses"
)

func TestAccount(t *testing.T) {
	t.Parallel()
	var path string
	e := serve(func(w http.ResponseWriter, r *http.Request) {
		path = r.Method + " " + r.URL.Path
		io.WriteString(w, `{"SendQuota":{"MaxSendRate":14.0,"Max24HourSend":50000.0,"SentLast24Hours":12.5},
			"SendingEnabled":true,"ProductionAccessEnabled":true,"EnforcementStatus":"PROBATION"}`)
	})(t)
	got, err := newSender(t, ses.Config{Endpoint: e.url}).Account(t.Context())
	if err != nil {
		t.Fatalf("Account: %v", err)
	}
	want := ses.Account{MaxSendRate: 14, Max24HourSend: 50_000, SentLast24Hours: 12.5, SendingEnabled: true, ProductionAccess: true, Review: "PROBATION"}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("account (-want +got):\n%s", d)
	}
	if path != "GET /v2/email/account" {
		t.Errorf("asked with %s", path)
	}
}

// A status other than HEALTHY is reported, also beside the sandbox. Emulators report none.
func TestAccount_Restriction(t *testing.T) {
	t.Parallel()
	const sandbox = "SES has this account in its sandbox"
	for answer, want := range map[string][]string{
		`"ProductionAccessEnabled":true,"EnforcementStatus":"HEALTHY"`:   nil,
		`"ProductionAccessEnabled":true`:                                 nil,
		`"ProductionAccessEnabled":true,"EnforcementStatus":"PROBATION"`: {"SES reviews this account, and may pause it for all companies: its enforcement status is PROBATION"},
		`"EnforcementStatus":"SHUTDOWN"`:                                 {sandbox, "AWS has paused this account for all companies after a review: its enforcement status is SHUTDOWN"},
		`"EnforcementStatus":"HEALTHY"`:                                  {sandbox},
	} {
		e := serve(func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprintf(w, `{"SendQuota":{"MaxSendRate":1,"Max24HourSend":200},"SendingEnabled":true,%s}`, answer)
		})(t)
		s := newSender(t, ses.Config{Endpoint: e.url})
		account, err := s.Account(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		got := account.Restriction()
		if len(want) == 0 && got != "" || s.Access()["review"] != account.Review {
			t.Errorf("%s: %q, %v", answer, got, s.Access())
		}
		for _, part := range want {
			if !strings.Contains(got, part) {
				t.Errorf("%s: %q", answer, got)
			}
		}
	}
}

// In the sandbox SES refuses recipients with the words for senders: such emails have a code of their own, and the state
// is reported.
func TestAccount_Sandbox(t *testing.T) {
	t.Parallel()
	var production atomic.Bool
	e := serve(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			fmt.Fprintf(w, `{"SendQuota":{"MaxSendRate":1,"Max24HourSend":200},"SendingEnabled":true,"ProductionAccessEnabled":%t}`, production.Load())
			return
		}
		w.Header().Set("X-Amzn-Errortype", "MessageRejected")
		w.WriteHeader(http.StatusBadRequest)
		io.WriteString(w, `{"message":"Email address is not verified. The following identities failed the check in region US-EAST-1: maria@cliente.example"}`)
	})(t)
	s := newSender(t, ses.Config{Endpoint: e.url})
	for _, step := range []struct {
		production bool
		code       string
	}{{false, "SES_SANDBOX"}, {true, "SES_IDENTITY_NOT_VERIFIED"}} {
		production.Store(step.production)
		if _, err := s.Account(t.Context()); err != nil {
			t.Fatal(err)
		}
		_, err := s.Send(t.Context(), message())
		var f *provider.Failure
		if !errors.As(err, &f) || f.Code != step.code || f.Outcome != provider.Failed || s.Access()["sandbox"] != !step.production {
			t.Errorf("production access %t: %v, %v; want %s", step.production, err, s.Access(), step.code)
		}
	}
}

func TestAccountErrors(t *testing.T) {
	t.Parallel()
	for name, at := range map[string]func(*testing.T) endpoint{
		"refused":            refuses(403, "AccessDeniedException", "no"),
		"without rate":       says(200, `{"SendingEnabled":true}`),
		"connection refused": closed,
	} {
		_, err := newSender(t, ses.Config{Endpoint: at(t).url}).Account(t.Context())
		if err == nil || !strings.HasPrefix(err.Error(), "get ses account: ") {
			t.Errorf("%s: Account error = %v", name, err)
		}
	}
}

// Every response except a server error counts as reachable.
func TestReach(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		at         func(*testing.T) endpoint
		reached    bool
		unreadable bool // if the server is in the place of SES
	}{
		"refused":                       {refuses(403, "AccessDeniedException", "no"), true, false},
		"throttled":                     {refuses(429, "TooManyRequestsException", "slow down"), true, false},
		"an emulator without a quota":   {says(200, `{"SendingEnabled":true}`), true, false},
		"an emulator without this call": {says(501, `{}`), true, false},
		"broken":                        {refuses(500, "InternalFailure", "sorry"), false, false},
		"unavailable":                   {says(503, ``), false, false},
		"connection refused":            {closed, false, false},
		"a page":                        {says(200, page), true, true},
		"an empty response":             {says(200, ``), true, true},
		"an empty object":               {says(200, `{}`), true, true},
		"a login":                       {says(302, page), true, true},
	} {
		sender := newSender(t, ses.Config{Endpoint: c.at(t).url})
		if err := sender.Reach(t.Context()); (err == nil) != c.reached {
			t.Errorf("%s: %v", name, err)
		}
		err := sender.AsAWS().Reach(t.Context())
		var f *provider.Failure
		if errors.As(err, &f) != c.unreadable || c.unreadable && f.Outcome != provider.Unreadable || !c.unreadable && (err == nil) != c.reached {
			t.Errorf("%s, in the place of SES: %v", name, err)
		}
	}
}

func TestAccount_Refusal(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		account ses.Account
		want    string
	}{
		"sending":                {ses.Account{SendingEnabled: true, Max24HourSend: 200, SentLast24Hours: 199}, ""},
		"without a quota":        {ses.Account{SendingEnabled: true, Max24HourSend: -1, SentLast24Hours: 1e6}, ""},
		"sending disabled":       {ses.Account{Max24HourSend: 200}, "SES_ACCOUNT_SENDING_PAUSED"},
		"the quota is exhausted": {ses.Account{SendingEnabled: true, Max24HourSend: 200, SentLast24Hours: 200}, "SES_DAILY_QUOTA_EXCEEDED"},
	} {
		if got := c.account.Refusal(); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
