package neighbours

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/google/uuid"
)

// backlogs are tables full of one company's rows.
func backlogs() []resource {
	return []resource{
		{
			name: "scheduled-rows", what: "a million scheduled emails, 200,000 of which become due at the same time",
			prepare: func(ctx context.Context, s *scenario) error {
				return s.seedScheduled(ctx, s.scale(1_000_000, 20_000), s.scale(200_000, 5000))
			},
			misuse: func(ctx context.Context, s *scenario) error {
				s.generateLoad(ctx, 8, 0, s.searchRequest)
				return nil
			},
		},
		{
			name: "cancelled-mailings", what: "4 mailings of 250,000 rows, one of which is being sent, are cancelled",
			prepare: func(ctx context.Context, s *scenario) (err error) {
				s.ids, err = s.uploadAll(ctx, 3, s.scale(250_000, 5000), map[string]string{"start": "false"})
				if err != nil {
					return err
				}
				started, err := s.uploadAll(ctx, 1, s.scale(250_001, 5001), map[string]string{"name": "enviada"})
				s.ids = append(s.ids, started...)
				return err
			},
			misuse: func(ctx context.Context, s *scenario) error {
				for _, id := range s.ids {
					s.ask(ctx, request{method: http.MethodPost, path: "/mailings/" + id.String() + "/cancel"})
				}
				s.generateLoad(ctx, 4, 0, func(n int) request {
					return request{method: http.MethodGet, path: "/mailings/" + s.ids[n%len(s.ids)].String() + "/entries?status=CANCELLED&limit=100"}
				})
				return nil
			},
		},
	}
}

func mailingID(a response) (uuid.UUID, error) {
	var accepted struct{ MailingID uuid.UUID }
	if err := json.Unmarshal(a.body, &accepted); err != nil {
		return uuid.Nil, fmt.Errorf("read response %.200q: %w", a.body, err)
	}
	return accepted.MailingID, nil
}

// dueAfter is the time from seedScheduled's return until its emails become due, within the
// measurement.
const dueAfter = 4 * time.Second
