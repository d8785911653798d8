package email

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
	"time"
	"unicode/utf8"
)

// SendJob is the task's payload, with the fields of the customer's EmailSendJobData. It refers to
// the body (HTMLRef) instead of containing it, and has a CPF or CNPJ only as a hash.
type SendJob struct {
	OutboxID  string `json:"outboxId"`
	CompanyID string `json:"companyId"`
	RequestID string `json:"requestId"`

	To  string   `json:"to"`
	CC  []string `json:"cc,omitempty"`
	BCC []string `json:"bcc,omitempty"`

	Subject string `json:"subject"`
	HTMLRef string `json:"htmlRef"` // the outbox id, or "mailing:" and the mailing's id

	ReplyTo string            `json:"replyTo,omitempty"`
	Headers map[string]string `json:"headers,omitempty"`
	Tags    []string          `json:"tags,omitempty"`

	Recipient JobRecipient `json:"recipient"`

	// Attempt is the number of the counted attempt for which the task was published, 1 to 5. Attempts refused because
	// of a provider quota do not count, so it may repeat. The dispatcher sets both fields: payloads in
	// the outbox and in dead letters have neither. A retry that waits on the queue keeps its task, and
	// with it both values; the outbox row has the current number.
	Attempt    int       `json:"attempt,omitzero"`
	EnqueuedAt time.Time `json:"enqueuedAt,omitzero"`

	// Traceparent is the W3C traceparent of the email's trace. It is only in the outbox, and only
	// if tracing is on: the dispatcher moves it to the task's header.
	Traceparent string `json:"traceparent,omitempty"`
}

// JobRecipient is the person at the address. In the payload of a mailing's email, a recipientId that is
// null means that the email makes no recipient; without the member, its claim makes one.
type JobRecipient struct {
	RecipientID string `json:"recipientId,omitempty"`
	ExternalID  string `json:"externalId,omitempty"`
	CPFCNPJHash string `json:"cpfCnpjHash,omitempty"`
	RazaoSocial string `json:"razaoSocial,omitempty"`
	Nome        string `json:"nome,omitempty"`
	Email       string `json:"email"`
}

// DecodeSendJob decodes a task's payload. An unknown field is an error: otherwise it would be
// dropped silently.
func DecodeSendJob(payload []byte) (SendJob, error) {
	var job SendJob
	decoder := json.NewDecoder(bytes.NewReader(payload))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&job); err != nil {
		return SendJob{}, fmt.Errorf("decode job: %w", err)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return SendJob{}, errors.New("decode job: more than one value")
	}
	return job, nil
}

// mailingRef is the prefix of HTMLRef of a mailing's email, followed by the mailing's id.
const mailingRef = "mailing:"

// Mailing returns the id of the email's mailing, if it belongs to one.
func (j *SendJob) Mailing() (id string, ok bool) {
	id, ok = strings.CutPrefix(j.HTMLRef, mailingRef)
	if !ok || !uuidPattern.MatchString(id) {
		return "", false
	}
	return id, true
}

var (
	uuidPattern   = regexp.MustCompile(`^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$`)
	sha256Pattern = regexp.MustCompile(`^[0-9a-f]{64}$`)
)

// IsSHA256 reports whether s is 64 lower-case hex digits.
func IsSHA256(s string) bool { return sha256Pattern.MatchString(s) }

// Validate is the INTEGRITY check: everything that can be validated without the database.
// maxAttempts bounds Attempt. The error lists all faults.
func (j *SendJob) Validate(maxAttempts int) error {
	var faults []error
	check := func(ok bool, field, rule string) {
		if !ok {
			faults = append(faults, fmt.Errorf("%s %s", field, rule))
		}
	}
	address := func(field, value string) {
		if err := CheckAddress(value); err != nil {
			faults = append(faults, fmt.Errorf("%s %w", field, err))
		}
	}

	check(uuidPattern.MatchString(j.OutboxID), "outboxId", "must be a UUID")
	check(uuidPattern.MatchString(j.CompanyID), "companyId", "must be a UUID")
	check(j.RequestID != "", "requestId", "must not be empty")
	address("to", j.To)
	check(len(j.CC) <= MaxCopies, "cc", "must have at most 5 addresses")
	for i, cc := range j.CC {
		address(fmt.Sprintf("cc[%d]", i), cc)
	}
	check(len(j.BCC) <= MaxCopies, "bcc", "must have at most 5 addresses")
	for i, bcc := range j.BCC {
		address(fmt.Sprintf("bcc[%d]", i), bcc)
	}
	n := utf8.RuneCountInString(j.Subject)
	check(n >= 1 && n <= MaxSubject, "subject", "must have 1 to 150 characters")
	check(!HasLineBreak(j.Subject), "subject", "must not contain control characters")
	check(j.HTMLRef != "", "htmlRef", "must not be empty")
	if j.ReplyTo != "" {
		address("replyTo", j.ReplyTo)
	}
	check(len(j.Headers) <= maxHeaders, "headers", "must have at most 10 headers")
	for name, value := range j.Headers {
		check(!HasLineBreak(name) && !HasLineBreak(value), "headers", "must not contain control characters")
	}
	check(len(j.Tags) <= MaxTags, "tags", "must have at most 5 tags")
	if j.Attempt < 1 || j.Attempt > maxAttempts {
		faults = append(faults, fmt.Errorf("attempt must be 1 to %d", maxAttempts))
	}
	check(!j.EnqueuedAt.IsZero(), "enqueuedAt", "must be a time")

	r := j.Recipient
	check(SameAddress(r.Email, j.To), "recipient.email", "must be equal to to")
	// An entry of a mailing may have its address alone, and its email no recipientId (see expand.sql).
	_, ofMailing := j.Mailing()
	check(ofMailing || r.RecipientID != "" || r.ExternalID != "" || r.CPFCNPJHash != "",
		"recipient", "needs recipientId, externalId or cpfCnpjHash")
	check(r.RecipientID == "" || uuidPattern.MatchString(r.RecipientID), "recipient.recipientId", "must be a UUID")
	check(r.CPFCNPJHash == "" || IsSHA256(r.CPFCNPJHash), "recipient.cpfCnpjHash", "must be 64 hex digits")
	return errors.Join(faults...)
}
