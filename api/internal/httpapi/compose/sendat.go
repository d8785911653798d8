package compose

import (
	"fmt"
	"time"

	"github.com/gin-gonic/gin"

	"email-gateway/api/internal/httpapi/problem"
	"email-gateway/api/internal/httpapi/reqbody"
	"email-gateway/api/internal/strictjson"
	"email-gateway/shared/draft"
	"email-gateway/shared/rules"
)

// sendAtRequest is the body of PATCH /v1/email/{id} and PATCH /mailings/{id}.
type sendAtRequest struct {
	SendAt string `json:"sendAt" validate:"required,timestamp"`
}

// SendAtReader reads the time in requests that reschedule an email or a mailing.
type SendAtReader struct {
	rules  *rules.Rules
	reader *strictjson.Reader[sendAtRequest]
}

// NewSendAtReader returns a SendAtReader.
func NewSendAtReader(checks *rules.Rules) (*SendAtReader, error) {
	reader, err := strictjson.NewReader[sendAtRequest]()
	if err != nil {
		return nil, fmt.Errorf("prepare reschedules: %w", err)
	}
	return &SendAtReader{rules: checks, reader: reader}, nil
}

// Read reads the requested time; the zero time means now.
func (r *SendAtReader) Read(c *gin.Context) (time.Time, error) {
	document, err := reqbody.ReadJSON(c)
	if err != nil {
		return time.Time{}, err
	}
	request, found := r.reader.Read(document)
	faults := r.rules.Check(&request, found)
	var sendAt time.Time
	if !faults.Has("sendAt") {
		sendAt = draft.SendAt(request.SendAt, time.Now(), &faults)
	}
	if len(faults) > 0 {
		return time.Time{}, problem.Invalid(faults)
	}
	return sendAt, nil
}
