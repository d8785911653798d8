package mailings

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/gin-gonic/gin"

	"email-gateway/api/internal/httpapi/accept"
	"email-gateway/api/internal/httpapi/compose"
	"email-gateway/api/internal/httpapi/reqctx"
	"email-gateway/api/internal/httpapi/response"
	"email-gateway/api/internal/mailing"
	"email-gateway/shared/email"
	"email-gateway/shared/mailmerge"
	"email-gateway/shared/store"
	"email-gateway/shared/store/idempotency"
	"email-gateway/shared/store/lane"
	mailingstore "email-gateway/shared/store/mailing"
)

// createRoute identifies the operation in idempotency_keys, for both prefixes. It must never
// change: keys of earlier releases are stored with it.
const createRoute = "POST /mailings"

// accepted is the 202 response: the mailing is durably stored.
type accepted struct {
	MailingID  string              `json:"mailingId"`
	Status     mailingstore.Status `json:"status"`
	Accepted   int                 `json:"accepted"`
	Invalid    int                 `json:"invalid"`
	Duplicates int                 `json:"duplicates"`
	// EmptyFields counts the accepted lines with an empty field that has no default, or an id that does not identify one person.
	EmptyFields int       `json:"emptyFields"`
	Warnings    []warning `json:"warnings,omitempty"`
	// Template is the version that the mailing keeps.
	Template *response.Template `json:"template,omitempty"`
}

// dryAnswer is the response of a dry run, with the first emails as they would be sent. They
// contain personal data of the file, so the stored response does not include them.
type dryAnswer struct {
	accepted
	Preview []mailing.Preview `json:"preview"`
}

// shown returns the response for this request.
func (d *mailingDraft) shown(answer []byte) ([]byte, error) {
	if !d.dryRun() {
		return answer, nil
	}
	var dry dryAnswer
	if err := json.Unmarshal(answer, &dry.accepted); err != nil {
		return nil, fmt.Errorf("read answer: %w", err)
	}
	dry.Preview = d.preview
	shown, err := json.Marshal(dry)
	if err != nil {
		return nil, fmt.Errorf("encode answer: %w", err)
	}
	return shown, nil
}

// warning is a possible problem of a mailing that was accepted.
type warning struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

// warningsOf reports what is missing from a mailing's templates, for html and text separately:
// a mail client shows one of them. The List-Unsubscribe header always has the link, but many
// mail clients do not show it.
func warningsOf(content mailing.Content) []warning {
	var warnings []warning
	for _, part := range content.Without(mailmerge.FieldUnsubscribeURL) {
		warnings = append(warnings, warning{"NO_UNSUBSCRIBE_URL", part + " has no {{unsubscribe_url}}: recipients see no unsubscribe link"})
	}
	return warnings
}

// Create accepts a mailing: it receives the whole form and stores its file, then writes
// everything in one transaction. A slow client never holds a transaction open.
func (h *Handlers) Create(c *gin.Context) error {
	if err := response.LiftWriteDeadline(c); err != nil {
		return err
	}
	key, err := accept.KeyWithoutSum(c.Request.Header, createRoute)
	if err != nil {
		return err
	}
	release, err := compose.EnterUpload(c.Request.Context(), h.uploads.forms, reqctx.CompanyOf(c))
	if err != nil {
		return err
	}
	defer release()
	up, err := h.readUpload(c)
	keepFile := false
	defer func() {
		if !keepFile {
			h.dropFile(c, up.file)
		}
	}()
	if err != nil {
		return err
	}
	d := h.newDraft(reqctx.StateOf(c).Caller, up.form, time.Now())
	sum, err := d.sum(up.file.Seen.SHA256, h.HashKey)
	if err != nil {
		return err
	}
	if key != nil {
		key.Sum = sum
	}
	m, validator, err := h.compose(c, d, up)
	if err != nil {
		return h.Accept.ReplayInstead(c, key, err)
	}
	m.RequestSHA256, m.Key = sum, key.Record(nil)
	answer, err := h.ingest(c, d, up.file, m, validator)
	var used *idempotency.UsedError
	var taken *mailingstore.FilenameUsedError
	switch {
	case errors.As(err, &used):
		if used.Answer.Answer, err = d.shown(used.Answer.Answer); err != nil {
			return err
		}
		return h.Accept.Replay(c, key, used.Answer)
	case errors.As(err, &taken) && bytes.Equal(taken.RequestSHA256, sum):
		return h.Accept.AnswerEarlier(c, key, taken.MailingID, accept.Unknown("mailing", taken.MailingID.String()), taken.Answer)
	case errors.As(err, &taken):
		return filenameExists(taken.MailingID.String(), d.filename)
	case errors.Is(err, store.ErrUnknownOutcome):
		keepFile = true
		return accept.Unknown("mailing", up.id.String())
	case err != nil:
		return h.Accept.ReplayInstead(c, key, err)
	}
	keepFile = !d.dryRun() // a dry run needs the file only for this response
	h.Wake(lane.Lanes{Company: reqctx.CompanyOf(c), Queue: email.QueueMailings})
	accept.RecordIDs(reqctx.StateOf(c), answer)
	if answer, err = d.shown(answer); err != nil {
		return err
	}
	response.Accepted(c, http.StatusAccepted, answer)
	return nil
}

// answerOf returns the function that builds the 202 response from the counts. shared describes rows that become one recipient.
func answerOf(m *mailingstore.NewMailing, warnings []warning, shared func(mailingstore.Counts) []string, template *response.Template) func(mailingstore.Counts) ([]byte, error) {
	id, held, dry := m.ID.String(), m.Held, m.DryRun
	return func(n mailingstore.Counts) ([]byte, error) {
		found := slices.Clone(warnings)
		for _, message := range shared(n) {
			found = append(found, warning{"SHARED_RECIPIENT", message})
		}
		status := mailingstore.Queued
		switch {
		case dry, n.Accepted == 0:
			status = mailingstore.Completed
		case held:
			status = mailingstore.Paused
		}
		answer, err := json.Marshal(accepted{id, status, n.Accepted, n.Invalid, n.Duplicates, n.EmptyFields, found, template})
		if err != nil {
			return nil, fmt.Errorf("encode answer: %w", err)
		}
		return answer, nil
	}
}
