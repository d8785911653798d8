package sessim_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/sesv2"
	"github.com/aws/aws-sdk-go-v2/service/sesv2/types"
	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"
	"github.com/google/go-cmp/cmp"

	"email-gateway/scripts/sessim"
)

// start runs a simulator and a client of the real SDK without retries.
func start(t *testing.T, cfg sessim.Config) (*sessim.Server, *sesv2.Client) {
	t.Helper()
	sim := sessim.New(cfg)
	server := httptest.NewServer(sim)
	t.Cleanup(server.Close)
	t.Cleanup(sim.Close) // first, or held requests keep the server from closing
	client := sesv2.New(sesv2.Options{
		Region:       "us-east-1",
		BaseEndpoint: aws.String(server.URL),
		Credentials:  credentials.NewStaticCredentialsProvider("id", "secret", ""),
		Retryer:      aws.NopRetryer{},
		HTTPClient:   awshttp.NewBuildableClient(), // the SDK's own: unlike net/http's it follows no 301
	})
	return sim, client
}

func utf8(text string) *types.Content {
	return &types.Content{Data: aws.String(text), Charset: aws.String("UTF-8")}
}

func input(to, outboxID string) *sesv2.SendEmailInput {
	return &sesv2.SendEmailInput{
		FromEmailAddress: aws.String("no-reply@example.com"),
		Destination:      &types.Destination{ToAddresses: []string{to}},
		Content: &types.EmailContent{Simple: &types.Message{
			Subject: utf8("Promoção de março"),
			Body:    &types.Body{Html: utf8("<p>Olá, José & família</p>"), Text: utf8("Olá, José & família")},
			Headers: []types.MessageHeader{{Name: aws.String("X-Campaign"), Value: aws.String("spring")}},
		}},
		EmailTags: []types.MessageTag{
			{Name: aws.String("outbox_id"), Value: aws.String(outboxID)},
			{Name: aws.String("attempt_id"), Value: aws.String(outboxID + "-1")},
			{Name: aws.String("company_id"), Value: aws.String("acme")},
		},
	}
}

func TestSDK_SendEmail(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	sim, client := start(t, sessim.Config{Clock: func() time.Time { return now }})
	in := input("Ana <ana@example.com>", "o1")
	in.Destination.CcAddresses = []string{"bia@example.com"}
	in.Destination.BccAddresses = []string{"caio@example.com"}
	in.ReplyToAddresses = []string{"help@example.com"}
	in.ConfigurationSetName = aws.String("main")
	out, err := client.SendEmail(t.Context(), in)
	if err != nil {
		t.Fatal(err)
	}
	want := []sessim.Mail{{
		MessageID: aws.ToString(out.MessageId), Time: now,
		From: "no-reply@example.com", To: []string{"Ana <ana@example.com>"},
		CC: []string{"bia@example.com"}, BCC: []string{"caio@example.com"}, ReplyTo: []string{"help@example.com"},
		Subject: "Promoção de março", Text: "Olá, José & família", HTML: "<p>Olá, José & família</p>",
		Headers:          []sessim.Pair{{Name: "X-Campaign", Value: "spring"}},
		Tags:             []sessim.Pair{{Name: "outbox_id", Value: "o1"}, {Name: "attempt_id", Value: "o1-1"}, {Name: "company_id", Value: "acme"}},
		ConfigurationSet: "main", OutboxID: "o1", AttemptID: "o1-1", CompanyID: "acme",
	}}
	if diff := cmp.Diff(want, sim.Inbox()); diff != "" {
		t.Error("inbox (-want +got):\n" + diff)
	}
	entry := sim.Requests("o1")[0]
	if !entry.Accepted || !entry.Answered || entry.Status != 200 || entry.MessageID != *out.MessageId || entry.RemoteAddr == "" {
		t.Errorf("entry = %+v", entry)
	}
	for _, recipient := range []string{"ana@example.com", "BIA@example.com", "caio@example.com", "@example.com"} {
		if n := len(sim.Accepted(recipient)); n != 1 {
			t.Errorf("Accepted(%q) has %d entries, want 1", recipient, n)
		}
	}
}

// Each row of the table through the SDK: the SDK's error, and the ledger's entry.
func TestSDK_EveryFault(t *testing.T) {
	t.Parallel()
	for _, fault := range sessim.Faults() {
		t.Run(fault.Name, func(t *testing.T) {
			t.Parallel()
			sim, client := start(t, sessim.Config{})
			rule := sessim.Rule{Fault: fault.Name, Match: sessim.Match{OutboxID: "o1"}, Times: 1}
			ctx := t.Context()
			switch fault.Name {
			case "hang", "hang-after":
				ctx = untilArrival(t, sim, "o1")
			case "slow", "slow-headers", "slow-body":
				rule.DelayMS = 30
			}
			if err := sim.Inject(rule); err != nil {
				t.Fatal(err)
			}
			started := time.Now()
			out, err := client.SendEmail(ctx, input("ana@example.com", "o1"))
			if took := time.Since(started); took < time.Duration(rule.DelayMS)*time.Millisecond {
				t.Errorf("answered after %v, before its delay", took)
			}
			checkSeen(t, fault, out, err)

			entry := sim.Requests("o1")[0]
			if whole := fault.Status > 0 && fault.Name != "truncated-cut"; entry.Answered != whole {
				t.Errorf("answered = %t, want %t", entry.Answered, whole)
			}
			if entry.Fault != fault.Name || entry.Accepted != fault.Accepted || entry.Status != fault.Status {
				t.Errorf("entry = %+v, table row = %+v", entry, fault)
			}
			if kept := len(sim.Inbox()) == 1; kept != fault.Accepted || kept != (entry.MessageID != "") {
				t.Errorf("in the inbox: %t, message id %q", kept, entry.MessageID)
			}

			// The rule is used up: the same mail is accepted now, on any connection left in the
			// pool.
			if _, err := client.SendEmail(t.Context(), input("ana@example.com", "o1")); err != nil {
				t.Fatalf("second call: %v", err)
			}
			duplicates := sim.Summary().Duplicates
			if got := len(duplicates) == 1; got != fault.Accepted {
				t.Errorf("duplicates = %v", duplicates)
			}
		})
	}
}

// untilArrival returns a context that ends when the request is in the ledger.
func untilArrival(t *testing.T, sim *sessim.Server, outboxID string) context.Context {
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		defer cancel()
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		for len(sim.Requests(outboxID)) == 0 && t.Context().Err() == nil {
			<-tick.C
		}
	}()
	return ctx
}

// checkSeen compares the SDK's result with the row of the response.
func checkSeen(t *testing.T, fault sessim.Fault, out *sesv2.SendEmailOutput, err error) {
	t.Helper()
	var response *smithyhttp.ResponseError
	status := 0
	if errors.As(err, &response) && response.Response != nil {
		status = response.HTTPStatusCode()
	}
	switch fault.Name {
	case "slow", "slow-headers", "slow-body":
		if err != nil || aws.ToString(out.MessageId) == "" {
			t.Errorf("out = %v, error = %v", out, err)
		}
		return
	case "empty-object", "empty-body":
		if err != nil || out.MessageId != nil {
			t.Errorf("out = %v, error = %v; want neither id nor error", out, err)
		}
		return
	}
	if err == nil {
		t.Fatalf("no error, out = %v", out)
	}
	if status != fault.Status {
		t.Errorf("status = %d, want %d (%v)", status, fault.Status, err)
	}
	var api smithy.APIError
	switch isAPI := errors.As(err, &api); {
	case fault.ErrorType == "" && isAPI && api.ErrorCode() != "UnknownError":
		t.Errorf("error code = %q, want none", api.ErrorCode())
	case fault.ErrorType != "" && (!isAPI || api.ErrorCode() != fault.ErrorType || api.ErrorMessage() == ""):
		t.Errorf("error = %v, want code %s", err, fault.ErrorType)
	}
}

func TestSDK_FaultByAddress(t *testing.T) {
	t.Parallel()
	sim, client := start(t, sessim.Config{})
	send := func(to string) string {
		_, err := client.SendEmail(t.Context(), input(to, "o1"))
		var api smithy.APIError
		if errors.As(err, &api) {
			return api.ErrorCode()
		}
		if err != nil {
			return "transport"
		}
		return "ok"
	}
	const throttled, fine = "TooManyRequestsException", "ok"
	for i, want := range []string{throttled, throttled, fine, fine} {
		if got := send("ana+sim-throttle-x2@example.com"); got != want {
			t.Errorf("request %d: %s, want %s", i+1, got, want)
		}
	}
	if got := send("Ana+SIM-throttle-x2@example.com"); got != fine {
		t.Errorf("same recipient in other mails: %s, want the same count", got)
	}
	if got := send("bia+sim-throttle-x2@example.com"); got != throttled {
		t.Errorf("other recipient: %s, want a separate count", got)
	}
	if got := send("sim-cut-after@example.com"); got != "transport" || len(sim.Accepted("sim-cut-after@example.com")) != 1 {
		t.Errorf("cut-after: %s", got)
	}
	if got := send("ana+sim-misspelt@example.com"); got != "BadRequestException" {
		t.Errorf("unknown fault: %s", got)
	}
}

func TestSDK_MessagePlaceholders(t *testing.T) {
	t.Parallel()
	_, client := start(t, sessim.Config{})
	_, err := client.SendEmail(t.Context(), input("Ana <sim-identity-not-verified@example.com>", "o1"))
	var rejected *types.MessageRejected
	if !errors.As(err, &rejected) {
		t.Fatal(err)
	}
	want := "Email address is not verified. The following identities failed the check in region US-EAST-1: no-reply@example.com, sim-identity-not-verified@example.com"
	if got := rejected.ErrorMessage(); got != want {
		t.Errorf("message = %q\nwant      %q", got, want)
	}
}

// An injected clock skew makes the SDK shift its signing time; the Date header must differ by far
// from the real time.
func TestSDK_ClockSkewDate(t *testing.T) {
	t.Parallel()
	_, client := start(t, sessim.Config{})
	_, err := client.SendEmail(t.Context(), input("sim-clock-skew@example.com", "o1"))
	var response *smithyhttp.ResponseError
	if !errors.As(err, &response) {
		t.Fatal(err)
	}
	date, err := http.ParseTime(response.Response.Header.Get("Date"))
	if err != nil || time.Until(date) < 30*time.Minute {
		t.Errorf("Date = %v, %v", date, err)
	}
}

func TestSDK_GetAccount(t *testing.T) {
	t.Parallel()
	sim, client := start(t, sessim.Config{MaxSendRate: 250})
	account := func() (*sesv2.GetAccountOutput, string) {
		out, err := client.GetAccount(t.Context(), &sesv2.GetAccountInput{})
		var api smithy.APIError
		switch {
		case errors.As(err, &api):
			return out, api.ErrorCode()
		case err != nil:
			return out, "unreadable"
		}
		return out, ""
	}
	if _, err := client.SendEmail(t.Context(), input("ana@example.com", "o1")); err != nil {
		t.Fatal(err)
	}
	out, code := account()
	if q := out.SendQuota; code != "" || q.MaxSendRate != 250 || q.Max24HourSend != -1 || q.SentLast24Hours != 1 || !out.SendingEnabled || !out.ProductionAccessEnabled {
		t.Errorf("account = %+v, %s", out, code)
	}

	for _, c := range []struct {
		name     string
		settings sessim.Settings
		code     string
		enforced string
		enabled  bool
		daily    float64
	}{
		{"quota", sessim.Settings{MaxSendRate: 5, DailyQuota: 100}, "", "HEALTHY", true, 100},
		{"paused", sessim.Settings{Paused: true}, "", "HEALTHY", false, -1},
		{"under review", sessim.Settings{Review: true}, "", "PROBATION", true, -1},
		{"suspended", sessim.Settings{Suspended: true}, "", "SHUTDOWN", false, -1},
		{"forbidden", sessim.Settings{GetAccount: "403"}, "AccessDeniedException", "", false, 0},
		{"missing", sessim.Settings{GetAccount: "404"}, "unreadable", "", false, 0},
		{"unavailable", sessim.Settings{Unavailable: true}, "ServiceUnavailable", "", false, 0},
	} {
		if err := sim.SetSettings(c.settings); err != nil {
			t.Fatal(err)
		}
		out, code := account()
		if code != c.code {
			t.Errorf("%s: code = %q, want %q", c.name, code, c.code)
		}
		if code != "" {
			continue
		}
		if aws.ToString(out.EnforcementStatus) != c.enforced || out.SendingEnabled != c.enabled || out.SendQuota.Max24HourSend != c.daily {
			t.Errorf("%s: account = %+v, quota = %+v", c.name, out, out.SendQuota)
		}
	}
	if n := sim.Summary().AccountCalls; n != 8 {
		t.Errorf("account calls = %d, want 8", n)
	}
}
