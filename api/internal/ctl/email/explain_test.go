package email

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"email-gateway/api/internal/ctl/goldentest"
	"email-gateway/shared/email"
	"email-gateway/shared/store/emails"
	processstore "email-gateway/shared/store/process"
)

// queriedAt is the time of all queries in this file.
var queriedAt = time.Date(2026, 11, 21, 13, 0, 0, 0, time.UTC)

func ago(d time.Duration) *time.Time { return in(-d) }
func in(d time.Duration) *time.Time  { t := queriedAt.Add(d); return &t }
func to[T any](v T) *T               { return &v }

// unblockedEmail returns an unblocked email with the status.
func unblockedEmail(status email.Status) emails.Diagnosis {
	s := emails.Diagnosis{
		Email: emails.Email{
			ID: uuid.MustParse("01a1fe26-7c3d-7e4f-8a5b-6c7d8e9f0a1b"), Status: status,
			CreatedAt: *ago(2 * time.Minute), ExpiresAt: *in(23*time.Hour + 58*time.Minute), NextAt: ago(2 * time.Minute),
			Priority: to(5), DeliveryPolicy: to(email.AtLeastOnce),
		},
		CompanyName: "Acme", Queue: to(email.QueueNormal), AskedAt: queriedAt,
	}
	failed := func(code, reason string) { s.ErrorCode, s.ErrorReason = to(code), to(reason) }
	switch status {
	case email.Enqueued:
		s.EnqueuedAt = ago(12 * time.Second)
	case email.RetryScheduled:
		s.Attempts, s.NextAt = 1, in(23*time.Second)
		failed("SES_UNAVAILABLE", "Service is unavailable for ana@example.com")
	case email.Processing:
		s.Attempts, s.LeaseUntil = 1, in(41*time.Second)
	case email.OutcomeUnknown:
		s.Attempts, s.OutcomeUnknown = 1, true
		failed("NETWORK_ERROR", "connection reset by peer")
	case email.Sent:
		s.Attempts, s.SentAt, s.SESMessageID = 2, ago(time.Minute), to("0100018c-ses")
	case email.Failed:
		s.Attempts, s.FailedAt = 5, ago(time.Minute)
		failed("SES_REJECTED", "Email address is not verified: ana@example.com")
	case email.Expired:
		s.ExpiresAt, s.ProcessedAt, s.ErrorCode = *ago(time.Minute), ago(time.Minute), to(email.CodeExpired)
	case email.Cancelled, email.Suppressed:
		s.ProcessedAt = ago(time.Minute)
	}
	return s
}

func process(service string, age time.Duration, details string) processstore.Status {
	return processstore.Status{Service: service, Instance: service + "-1", Age: age, Details: []byte(details)}
}

// well returns a healthy dispatcher and worker.
func well() []processstore.Status {
	return []processstore.Status{
		process("dispatcher", 2*time.Second, `{"redis":{"status":"connected"}}`),
		process("worker", 3*time.Second, `{"redis":{"status":"connected"},"ses":{"status":"connected"},"concurrency":10}`),
	}
}

// case of an email with the codes of its findings. The texts are in
// testdata/explain.golden.
type explainCase struct {
	name   string
	status email.Status
	change func(s *emails.Diagnosis, processes *[]processstore.Status)
	want   string
}

func explainCases() []explainCase {
	type (
		s = *emails.Diagnosis
		p = *[]processstore.Status
	)
	nothing := func(s, p) {}
	only := func(change func(s)) func(s, p) { return func(s s, _ p) { change(s) } }
	suspended := only(func(s s) { s.SuspendedAt, s.SuspendedReason = ago(time.Hour), to("unpaid") })
	paused := only(func(s s) { s.PausedAt = ago(time.Hour) })
	parked := only(func(s s) { s.ParkedUntil = in(4 * time.Minute) })
	laneHeld := only(func(s s) { s.HeldAt, s.HeldReason = ago(time.Hour), to("complaints") })
	breakerOpen := only(func(s s) { s.BreakerOpenedAt, s.BreakerReason = ago(10*time.Minute), to("SES_ACCOUNT_SENDING_PAUSED") })
	allHeld := only(func(s s) { s.BreakerHeldAt, s.BreakerHeldReason = ago(time.Minute), to("drill") })
	overdue := only(func(s s) { s.ExpiresAt = *ago(5 * time.Second) })
	noDispatcher := func(_ s, p p) {
		*p = slices.DeleteFunc(*p, func(s processstore.Status) bool { return s.Service == "dispatcher" })
	}
	noWorker := func(_ s, p p) {
		*p = slices.DeleteFunc(*p, func(s processstore.Status) bool { return s.Service == "worker" })
	}
	silent := func(_ s, p p) { (*p)[0].Age, (*p)[1].Age = 40*time.Second, 50*time.Second }
	noRedis := func(_ s, p p) {
		(*p)[0].Details, (*p)[1].Details = []byte(`{"redis":{"status":"disconnected"}}`), []byte(`{"redis":{"status":"disconnected"}}`)
	}
	noSES := func(_ s, p p) {
		(*p)[1].Details = []byte(`{"redis":{"status":"connected"},"ses":{"status":"disconnected"}}`)
	}
	return []explainCase{
		{"due", email.Pending, nothing, "DUE DEADLINE"},
		{"scheduled by sendAt", email.Pending, only(func(s s) { s.NextAt, s.ExpiresAt = in(3*time.Hour), *in(27 * time.Hour) }), "SCHEDULED DEADLINE"},
		{"moved to another time", email.Pending, only(func(s s) {
			s.NextAt, s.ExpiresAt, s.LastEvent = in(3*time.Hour), *in(27 * time.Hour), to(email.EventRescheduled)
		}), "RESCHEDULED DEADLINE"},
		{"given back", email.Pending, only(func(s s) {
			s.NextAt, s.LastEvent, s.ErrorCode, s.ErrorReason = in(4*time.Second), to(email.EventReleased), to("SES_ACCOUNT_PAUSED"), to("Sending is paused")
		}), "LAST_ERROR RELEASED DEADLINE"},
		{"overdue", email.Pending, overdue, "OVERDUE"},
		{"overdue, no dispatcher", email.Pending, func(s s, p p) { overdue(s, p); noDispatcher(s, p) }, "OVERDUE NO_DISPATCHER"},
		{"company suspended", email.Pending, suspended, "COMPANY_SUSPENDED DUE DEADLINE"},
		{"lane paused", email.Pending, paused, "LANE_PAUSED DUE DEADLINE"},
		{"lane parked", email.Pending, parked, "LANE_PARKED DUE DEADLINE"},
		{"lane held by an operator", email.Pending, laneHeld, "LANE_HELD DUE DEADLINE"},
		{"of a mailing, not tried yet, lane held", email.Pending, func(s s, p p) {
			laneHeld(s, p)
			s.ExpiresAt, s.Queue = s.CreatedAt.AddDate(10, 0, 0), to(email.QueueLow)
			s.LaneMailing = uuid.NullUUID{UUID: uuid.MustParse("01a1fe26-0000-7e4f-8a5b-6c7d8e9f0a1b"), Valid: true}
		}, "LANE_HELD DUE NO_DEADLINE"},
		{"circuit breaker open", email.Pending, breakerOpen, "GATE_SHUT DUE DEADLINE"},
		{"everything held by an operator", email.Pending, allHeld, "ALL_HELD DUE DEADLINE"},
		{"lane was parked until a while ago", email.Pending, only(func(s s) { s.ParkedUntil = ago(time.Second) }), "DUE DEADLINE"},
		{"no dispatcher", email.Pending, noDispatcher, "NO_DISPATCHER DUE DEADLINE"},
		{"dispatcher silent", email.Pending, silent, "NO_DISPATCHER DUE DEADLINE"},
		{"Redis down", email.Pending, noRedis, "REDIS_DOWN DUE DEADLINE"},
		{"no worker", email.Pending, noWorker, "DUE DEADLINE"},
		{"everything at once", email.Pending, func(s s, p p) {
			suspended(s, p)
			paused(s, p)
			parked(s, p)
			silent(s, p)
		}, "COMPANY_SUSPENDED LANE_PAUSED LANE_PARKED NO_DISPATCHER DUE DEADLINE"},

		{"in its turn", email.Enqueued, nothing, "ENQUEUED NEXT_WORKER DEADLINE"},
		{"for long", email.Enqueued, only(func(s s) { s.EnqueuedAt = ago(20 * time.Minute) }), "ENQUEUED LONG_IN_QUEUE DEADLINE"},
		{"overdue", email.Enqueued, overdue, "ENQUEUED OVERDUE"},
		{"company suspended", email.Enqueued, suspended, "ENQUEUED COMPANY_SUSPENDED WILL_BE_RETURNED DEADLINE"},
		{"lane paused", email.Enqueued, paused, "ENQUEUED LANE_PAUSED WILL_BE_RETURNED DEADLINE"},
		{"lane parked", email.Enqueued, parked, "ENQUEUED LANE_PARKED WILL_BE_RETURNED DEADLINE"},
		{"circuit breaker open", email.Enqueued, breakerOpen, "ENQUEUED GATE_SHUT WILL_BE_RETURNED DEADLINE"},
		{"no dispatcher", email.Enqueued, noDispatcher, "ENQUEUED NEXT_WORKER DEADLINE"},
		{"no worker", email.Enqueued, noWorker, "ENQUEUED NO_WORKER DEADLINE"},
		{"worker silent", email.Enqueued, silent, "ENQUEUED NO_WORKER DEADLINE"},
		{"one of two workers silent", email.Enqueued, func(_ s, p p) {
			*p = append(*p, process("worker", time.Minute, `{}`))
		}, "ENQUEUED NEXT_WORKER DEADLINE"},
		{"Redis down", email.Enqueued, noRedis, "ENQUEUED REDIS_DOWN DEADLINE"},
		{"one of two workers without Redis", email.Enqueued, func(_ s, p p) {
			*p = append(*p, process("worker", time.Second, `{"redis":{"status":"disconnected"}}`))
		}, "ENQUEUED NEXT_WORKER DEADLINE"},
		{"workers that report no parts", email.Enqueued, func(_ s, p p) { (*p)[1].Details = []byte(`{}`) }, "ENQUEUED NEXT_WORKER DEADLINE"},
		{"workers that report nonsense", email.Enqueued, func(_ s, p p) { (*p)[1].Details = []byte(`{"redis":7}`) }, "ENQUEUED NEXT_WORKER DEADLINE"},
		{"SES down", email.Enqueued, noSES, "ENQUEUED SES_DOWN NEXT_WORKER DEADLINE"},

		{"waiting", email.RetryScheduled, nothing, "LAST_ERROR NEXT_TRY DEADLINE"},
		{"waiting, with throttled tries", email.RetryScheduled, only(func(s s) { s.Attempts, s.Throttles = 4, 2 }), "LAST_ERROR NEXT_TRY THROTTLES DEADLINE"},
		{"due", email.RetryScheduled, only(func(s s) { s.NextAt = ago(2 * time.Second) }), "LAST_ERROR NEXT_TRY DEADLINE"},
		{"due for long", email.RetryScheduled, only(func(s s) { s.NextAt = ago(40 * time.Second) }), "LAST_ERROR NEXT_TRY DEADLINE"},
		{"its task lost", email.RetryScheduled, only(func(s s) { s.NextAt, s.EnqueuedAt = ago(40*time.Second), ago(50*time.Second) }), "LAST_ERROR RETRY_LOST DEADLINE"},
		{"its task lost and no dispatcher", email.RetryScheduled, func(s s, p p) {
			s.NextAt, s.EnqueuedAt = ago(40*time.Second), ago(50*time.Second)
			noDispatcher(s, p)
		}, "LAST_ERROR RETRY_LOST NO_DISPATCHER DEADLINE"},
		{"the next try too late", email.RetryScheduled, only(func(s s) { s.ExpiresAt = *in(10 * time.Second) }), "LAST_ERROR EXPIRES_FIRST DEADLINE"},
		{"overdue", email.RetryScheduled, overdue, "LAST_ERROR OVERDUE"},
		{"company suspended", email.RetryScheduled, suspended, "LAST_ERROR COMPANY_SUSPENDED NEXT_TRY DEADLINE"},
		{"company suspended, due for long", email.RetryScheduled, func(s s, p p) {
			s.NextAt = ago(40 * time.Second)
			suspended(s, p)
		}, "LAST_ERROR COMPANY_SUSPENDED NEXT_TRY DEADLINE"},
		{"lane paused", email.RetryScheduled, paused, "LAST_ERROR LANE_PAUSED NEXT_TRY DEADLINE"},
		{"lane parked", email.RetryScheduled, parked, "LAST_ERROR LANE_PARKED NEXT_TRY DEADLINE"},
		{"no worker", email.RetryScheduled, noWorker, "LAST_ERROR NEXT_TRY NO_WORKER DEADLINE"},
		{"Redis down", email.RetryScheduled, noRedis, "LAST_ERROR NEXT_TRY REDIS_DOWN DEADLINE"},
		{"SES down", email.RetryScheduled, noSES, "LAST_ERROR NEXT_TRY SES_DOWN DEADLINE"},

		{"in work", email.Processing, nothing, "IN_WORK"},
		{"in work, company suspended", email.Processing, suspended, "IN_WORK"},
		{"lease ended", email.Processing, only(func(s s) { s.LeaseUntil = ago(3 * time.Minute) }), "LEASE_ENDED MAY_HAVE_BEEN_SENT AT_LEAST_ONCE"},
		{"lease ended, at most once, no dispatcher", email.Processing, func(s s, p p) {
			s.LeaseUntil, s.DeliveryPolicy = ago(3*time.Minute), to(email.AtMostOnce)
			noDispatcher(s, p)
		}, "LEASE_ENDED NO_DISPATCHER MAY_HAVE_BEEN_SENT AT_MOST_ONCE"},
		{"lease ended, no worker", email.Processing, func(s s, p p) {
			s.LeaseUntil = ago(3 * time.Minute)
			noWorker(s, p)
		}, "LEASE_ENDED MAY_HAVE_BEEN_SENT AT_LEAST_ONCE"},

		{"at least once", email.OutcomeUnknown, nothing, "OUTCOME_UNKNOWN AT_LEAST_ONCE LAST_ERROR"},
		{"at most once", email.OutcomeUnknown, only(func(s s) { s.DeliveryPolicy = to(email.AtMostOnce) }), "OUTCOME_UNKNOWN AT_MOST_ONCE LAST_ERROR"},

		{"sent", email.Sent, nothing, "SENT"},
		{"sent, nothing running any more", email.Sent, func(_ s, p p) { *p = nil }, "SENT"},
		{"sent, perhaps twice", email.Sent, only(func(s s) { s.PossibleDuplicate, s.OutcomeUnknown = true, true }), "SENT POSSIBLE_DUPLICATE"},
		{"failed", email.Failed, nothing, "FAILED RETRY_POSSIBLE"},
		{"failed, perhaps sent", email.Failed, only(func(s s) { s.OutcomeUnknown = true }), "FAILED MAY_HAVE_BEEN_SENT RETRY_POSSIBLE"},
		{"failed, company suspended", email.Failed, suspended, "FAILED RETRY_POSSIBLE COMPANY_SUSPENDED"},
		{"failed and purged", email.Failed, only(func(s s) { s.Queue, s.DeliveryPolicy, s.NextAt = nil, nil, nil }), "FAILED PURGED"},
		{"failed, body erased", email.Failed, only(func(s s) { s.ErasedAt = to(queriedAt) }), "FAILED PURGED"},
		{"expired", email.Expired, nothing, "EXPIRED RETRY_POSSIBLE"},
		{"expired after a try", email.Expired, only(func(s s) { s.Attempts, s.ErrorReason = 1, to("Maximum sending rate exceeded.") }), "EXPIRED LAST_ERROR RETRY_POSSIBLE"},
		{"cancelled", email.Cancelled, nothing, "CANCELLED RETRY_POSSIBLE"},
		{"cancelled and purged", email.Cancelled, only(func(s s) { s.Queue, s.ProcessedAt = nil, nil }), "CANCELLED PURGED"},
		{"suppressed", email.Suppressed, nothing, "SUPPRESSED"},
	}
}

func TestExplain(t *testing.T) {
	t.Parallel()
	var sentences strings.Builder
	covered := map[email.Status]bool{}
	for _, tt := range explainCases() {
		at, processes := unblockedEmail(tt.status), well()
		tt.change(&at, &processes)
		got := explain(at, processes, email.MaxAttempts)
		covered[tt.status] = true

		var codes []string
		for _, f := range got.Findings {
			codes = append(codes, f.Code)
		}
		if diff := cmp.Diff(strings.Fields(tt.want), codes); diff != "" {
			t.Errorf("%s, %s (-want +got):\n%s", tt.status, tt.name, diff)
		}
		if strings.Contains(textOf(got), "ana@example.com") {
			t.Errorf("%s, %s: an address in clear:\n%s", tt.status, tt.name, textOf(got))
		}
		_, findings, _ := strings.Cut(textOf(got), "\n\n")
		sentences.WriteString("## " + string(tt.status) + ", " + tt.name + "\n" + findings + "\n")
	}
	for _, status := range email.Statuses() {
		if !covered[status] {
			t.Errorf("no case covers %s", status)
		}
	}
	goldentest.Compare(t, "explain", sentences.String())
}

// Everything that blocks a waiting email is reported, and so is its deadline.
func TestExplain_EveryStatusTimesEveryObstacle(t *testing.T) {
	t.Parallel()
	obstacles := []struct {
		code   string
		change func(*emails.Diagnosis, *[]processstore.Status)
		blocks []email.Status
	}{
		{
			"COMPANY_SUSPENDED", func(s *emails.Diagnosis, _ *[]processstore.Status) { s.SuspendedAt = ago(time.Hour) },
			[]email.Status{email.Pending, email.Enqueued, email.RetryScheduled, email.Failed, email.Expired, email.Cancelled},
		},
		{
			"LANE_PAUSED", func(s *emails.Diagnosis, _ *[]processstore.Status) { s.PausedAt = ago(time.Hour) },
			[]email.Status{email.Pending, email.Enqueued, email.RetryScheduled, email.Failed, email.Expired, email.Cancelled},
		},
		{
			"LANE_PARKED", func(s *emails.Diagnosis, _ *[]processstore.Status) { s.ParkedUntil = in(time.Hour) },
			[]email.Status{email.Pending, email.Enqueued, email.RetryScheduled, email.Failed, email.Expired, email.Cancelled},
		},
		{
			"OVERDUE", func(s *emails.Diagnosis, _ *[]processstore.Status) { s.ExpiresAt = *ago(time.Second) },
			[]email.Status{email.Pending, email.Enqueued, email.RetryScheduled},
		},
		{
			"NO_DISPATCHER", func(_ *emails.Diagnosis, p *[]processstore.Status) { *p = (*p)[1:] },
			[]email.Status{email.Pending},
		},
		{
			"NO_WORKER", func(_ *emails.Diagnosis, p *[]processstore.Status) { *p = (*p)[:1] },
			[]email.Status{email.Enqueued, email.RetryScheduled},
		},
	}
	for _, status := range email.Statuses() {
		for _, o := range obstacles {
			at, processes := unblockedEmail(status), well()
			o.change(&at, &processes)
			got := explain(at, processes, email.MaxAttempts)
			reported := map[string]bool{}
			for _, f := range got.Findings {
				reported[f.Code] = true
			}
			if blocks := slices.Contains(o.blocks, status); reported[o.code] != blocks {
				t.Errorf("%s × %s: reported %v, want %v", status, o.code, reported[o.code], blocks)
			}
			if status.Claimable() && !reported["DEADLINE"] && !reported["OVERDUE"] {
				t.Errorf("%s × %s: the deadline is not reported", status, o.code)
			}
		}
	}
}

// A provider's message cannot forge a line of the output.
func TestExplain_EscapesControlCharacters(t *testing.T) {
	t.Parallel()
	at := unblockedEmail(email.Failed)
	at.ErrorReason = to("no\n- It was sent.\x1b[2J")
	if text := textOf(explain(at, nil, email.MaxAttempts)); strings.Contains(text, "\n- It was sent") || strings.Contains(text, "\x1b") {
		t.Errorf("the control characters are not escaped:\n%s", text)
	}
}
