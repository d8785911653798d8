package email_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"email-gateway/shared/email"
)

// validJob uses every field.
func validJob() email.SendJob {
	return email.SendJob{
		OutboxID:  "01990a2b-7c3d-7e4f-8a5b-6c7d8e9f0a1b",
		CompanyID: "01990a2b-0000-7000-8000-000000000001",
		RequestID: "req-1",
		To:        "ana@example.com",
		CC:        []string{"eva@example.com"},
		BCC:       []string{"ivo@example.com"},
		Subject:   "Sua fatura está disponível",
		HTMLRef:   "01990a2b-7c3d-7e4f-8a5b-6c7d8e9f0a1b",
		ReplyTo:   "help@acme.example",
		Headers:   map[string]string{"X-Invoice": "2026-11"},
		Tags:      []string{"invoice"},
		Recipient: email.JobRecipient{
			RecipientID: "01990a2b-0000-7000-8000-000000000002",
			ExternalID:  "CUST-1",
			CPFCNPJHash: strings.Repeat("0a", 32),
			RazaoSocial: "Acme Ltda", Nome: "Ana", Email: "ana@EXAMPLE.com",
		},
		Attempt:    1,
		EnqueuedAt: time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC),
	}
}

func TestSendJob_Validate(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		change func(*email.SendJob)
		want   string // the fault; "" = valid
	}{
		{"complete", func(*email.SendJob) {}, ""},
		{"only what is required", func(j *email.SendJob) {
			j.CC, j.BCC, j.ReplyTo, j.Headers, j.Tags = nil, nil, "", nil, nil
			j.Recipient = email.JobRecipient{ExternalID: "CUST-1", Email: j.To}
		}, ""},
		{"the recipient's address in another case", func(j *email.SendJob) { j.Recipient.Email = strings.ToUpper(j.To) }, ""},
		{"the last try", func(j *email.SendJob) { j.Attempt = 5 }, ""},
		{"subject of 150 characters", func(j *email.SendJob) { j.Subject = strings.Repeat("ç", 150) }, ""},
		{"a subject that an earlier release accepted", func(j *email.SendJob) { j.Subject = "PROMO\u00c3\u0087" }, ""},
		{"five copies", func(j *email.SendJob) { j.CC = slices.Repeat(j.CC, 5) }, ""},
		{"an email of a mailing to an address alone", func(j *email.SendJob) {
			j.HTMLRef, j.Recipient = "mailing:"+j.OutboxID, email.JobRecipient{Email: j.To}
		}, ""},
		{"hash as the only identifier", func(j *email.SendJob) { j.Recipient.RecipientID, j.Recipient.ExternalID = "", "" }, ""},

		{"outboxId", func(j *email.SendJob) { j.OutboxID = "42" }, "outboxId must be a UUID"},
		{"outboxId with a newline", func(j *email.SendJob) { j.OutboxID += "\n" }, "outboxId must be a UUID"},
		{"companyId", func(j *email.SendJob) { j.CompanyID = "" }, "companyId must be a UUID"},
		{"requestId", func(j *email.SendJob) { j.RequestID = "" }, "requestId must not be empty"},
		{"to", func(j *email.SendJob) { j.To, j.Recipient.Email = "ana", "ana" }, "to is not an email address"},
		{"cc", func(j *email.SendJob) { j.CC = []string{"eva@example.com", "x"} }, "cc[1] is not an email address"},
		{"six cc", func(j *email.SendJob) { j.CC = slices.Repeat(j.CC, 6) }, "cc must have at most 5 addresses"},
		{"bcc", func(j *email.SendJob) { j.BCC = []string{"josé@example.com"} }, "bcc[0] must be ASCII before the @"},
		{"six bcc", func(j *email.SendJob) { j.BCC = slices.Repeat(j.BCC, 6) }, "bcc must have at most 5 addresses"},
		{"no subject", func(j *email.SendJob) { j.Subject = "" }, "subject must have 1 to 150 characters"},
		{"subject of 151 characters", func(j *email.SendJob) { j.Subject = strings.Repeat("a", 151) }, "subject must have 1 to 150 characters"},
		{"subject with a newline", func(j *email.SendJob) { j.Subject = "a\r\nBcc: x" }, "subject must not contain control characters"},
		{"htmlRef", func(j *email.SendJob) { j.HTMLRef = "" }, "htmlRef must not be empty"},
		{"replyTo", func(j *email.SendJob) { j.ReplyTo = "nobody" }, "replyTo is not an email address"},
		{"eleven headers", func(j *email.SendJob) {
			for i := range 10 {
				j.Headers[fmt.Sprint("X-", i)] = "1"
			}
		}, "headers must have at most 10 headers"},
		{"header value with a newline", func(j *email.SendJob) { j.Headers["X-Invoice"] = "1\nBcc: x" }, "headers must not contain control characters"},
		{"header name with a newline", func(j *email.SendJob) { j.Headers["X\nY"] = "1" }, "headers must not contain control characters"},
		{"six tags", func(j *email.SendJob) { j.Tags = slices.Repeat(j.Tags, 6) }, "tags must have at most 5 tags"},
		{"attempt 0", func(j *email.SendJob) { j.Attempt = 0 }, "attempt must be 1 to 5"},
		{"attempt 6", func(j *email.SendJob) { j.Attempt = 6 }, "attempt must be 1 to 5"},
		{"enqueuedAt", func(j *email.SendJob) { j.EnqueuedAt = time.Time{} }, "enqueuedAt must be a time"},
		{"another recipient", func(j *email.SendJob) { j.Recipient.Email = "eva@example.com" }, "recipient.email must be equal to to"},
		{"recipient without an identifier", func(j *email.SendJob) {
			j.Recipient.RecipientID, j.Recipient.ExternalID, j.Recipient.CPFCNPJHash = "", "", ""
		}, "recipient needs recipientId, externalId or cpfCnpjHash"},
		{"recipientId", func(j *email.SendJob) { j.Recipient.RecipientID = "7" }, "recipient.recipientId must be a UUID"},
		{"a CPF in the hash's place", func(j *email.SendJob) { j.Recipient.CPFCNPJHash = "52998224725" }, "recipient.cpfCnpjHash must be 64 hex digits"},
		{"hash in upper case", func(j *email.SendJob) { j.Recipient.CPFCNPJHash = strings.Repeat("0A", 32) }, "recipient.cpfCnpjHash must be 64 hex digits"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			job := validJob()
			tt.change(&job)
			err := job.Validate(email.MaxAttempts)
			switch {
			case tt.want == "" && err != nil:
				t.Errorf("a valid job is rejected: %v", err)
			case tt.want != "" && (err == nil || !strings.HasPrefix(err.Error(), tt.want) || strings.Contains(err.Error(), "\n")):
				t.Errorf("got %v, want just %q", err, tt.want)
			}
		})
	}
}

func TestSendJob_ValidateNamesEveryFault(t *testing.T) {
	t.Parallel()
	err := new(email.SendJob).Validate(email.MaxAttempts)
	if err == nil {
		t.Fatal("an empty job is valid")
	}
	for _, field := range []string{"outboxId", "companyId", "requestId", "to", "subject", "htmlRef", "attempt", "enqueuedAt", "recipient"} {
		if !strings.Contains("\n"+err.Error(), "\n"+field+" ") {
			t.Errorf("the error does not name %s:\n%v", field, err)
		}
	}
}

func TestDecodeSendJob_RoundTrip(t *testing.T) {
	t.Parallel()
	want := validJob()
	payload, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	got, err := email.DecodeSendJob(payload)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-sent +read):\n%s", diff)
	}
}

// The names are the customer's; a renamed field would break queued tasks during an update of the
// programs.
func TestSendJob_FieldNames(t *testing.T) {
	t.Parallel()
	payload, err := json.Marshal(validJob())
	if err != nil {
		t.Fatal(err)
	}
	var fields map[string]json.RawMessage
	var recipient map[string]json.RawMessage
	if err := json.Unmarshal(payload, &fields); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(fields["recipient"], &recipient); err != nil {
		t.Fatal(err)
	}
	wantFields := []string{
		"attempt", "bcc", "cc", "companyId", "enqueuedAt", "headers", "htmlRef", "outboxId", "recipient",
		"replyTo", "requestId", "subject", "tags", "to",
	}
	if diff := cmp.Diff(wantFields, slices.Sorted(maps.Keys(fields))); diff != "" {
		t.Errorf("job (-want +got):\n%s", diff)
	}
	wantRecipient := []string{"cpfCnpjHash", "email", "externalId", "nome", "razaoSocial", "recipientId"}
	if diff := cmp.Diff(wantRecipient, slices.Sorted(maps.Keys(recipient))); diff != "" {
		t.Errorf("recipient (-want +got):\n%s", diff)
	}
}

// Unset fields are omitted: a dead letter shows the job as in the outbox.
func TestSendJob_OmitsDispatcherFields(t *testing.T) {
	t.Parallel()
	job := validJob()
	job.Attempt, job.EnqueuedAt = 0, time.Time{}
	payload, err := json.Marshal(job)
	if err != nil {
		t.Fatal(err)
	}
	for _, field := range []string{"attempt", "enqueuedAt"} {
		if strings.Contains(string(payload), `"`+field+`"`) {
			t.Errorf("the payload has the field %s: %s", field, payload)
		}
	}
}

func TestDecodeSendJob_Refuses(t *testing.T) {
	t.Parallel()
	tests := []struct{ name, payload string }{
		{"nothing", ""},
		{"no JSON", "outboxId=1"},
		{"cut off", `{"outboxId":"1"`},
		{"an unknown field", `{"outboxId":"1","cpfCnpj":"52998224725"}`},
		{"two jobs", `{"outboxId":"1"}{"outboxId":"2"}`},
		{"rubbish behind it", `{"outboxId":"1"}]`},
		{"a bracket behind it", `{"outboxId":"1"}}`},
		{"a list", `[]`},
		{"another type", `{"outboxId":1}`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if job, err := email.DecodeSendJob([]byte(tt.payload)); err == nil {
				t.Errorf("the payload is decoded as %+v, want an error", job)
			}
		})
	}
}

// Decoding and validating any input yields a job or an error, and a decoded job is decoded again to
// the same.
func FuzzDecodeSendJob(f *testing.F) {
	valid, err := json.Marshal(validJob())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(valid)
	for _, seed := range []string{"", "null", "{}", "[]", `{"cc":[null]}`, `{"enqueuedAt":"x"}`, `{"subject":"\ud800"}`, `{"headers":{"":""}}`, "\xff", string(valid) + "x"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, payload []byte) {
		job, err := email.DecodeSendJob(payload)
		if err != nil {
			return
		}
		first := job.Validate(email.MaxAttempts)
		again, err := json.Marshal(job)
		if err != nil {
			t.Fatalf("encode what was read: %v", err)
		}
		copied, err := email.DecodeSendJob(again)
		if err != nil {
			t.Fatalf("read what was written: %v", err)
		}
		if second := copied.Validate(email.MaxAttempts); (first == nil) != (second == nil) {
			t.Errorf("first %v, then %v", first, second)
		}
	})
}
