package interviews

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"

	"email-gateway/shared/email"
)

// Gateway is a client of the gateway's api, which reports the status of the reminders: other
// programs have no access to the gateway's tables.
type Gateway struct{ URL, Key string }

// Sent is an email about an interview, as returned by GET /v1/emails.
type Sent struct {
	ID        string       `json:"outboxId"`
	Status    email.Status `json:"status"`
	Aggregate struct {
		EventType string `json:"eventType"`
	} `json:"aggregate"`
}

// About returns all emails about an interview, the newest first.
func (g Gateway) About(ctx context.Context, id int64) ([]Sent, error) {
	query := url.Values{"aggregateType": {aggregateType}, "aggregateId": {strconv.FormatInt(id, 10)}}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, g.URL+"/v1/emails?"+query.Encode(), nil)
	if err != nil {
		return nil, fmt.Errorf("build request: %w", err)
	}
	request.Header.Set("Authorization", "Bearer "+g.Key)
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		return nil, fmt.Errorf("read response: %w", err)
	}
	if answer.StatusCode != http.StatusOK {
		return nil, errors.New(answer.Status + ": " + string(text))
	}
	var page struct {
		Emails []Sent `json:"emails"`
	}
	if err := json.Unmarshal(text, &page); err != nil {
		return nil, fmt.Errorf("read response: %w", err)
	}
	return page.Emails, nil
}
