package neighbours

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/google/uuid"

	"email-gateway/shared/service"
)

// uploadPause is the pause before a refused upload is sent again.
const uploadPause = 100 * time.Millisecond

// imports are the imports through RabbitMQ.
func imports() []resource {
	return []resource{
		{
			name: "recipient-imports", what: "16 connections import 1,000 recipients per request without a pause",
			misuse: func(ctx context.Context, s *scenario) error {
				s.generateLoad(ctx, 16, 0, func(n int) request {
					people := make([]map[string]any, 1000)
					for i := range people {
						people[i] = map[string]any{"externalId": fmt.Sprintf("p-%d-%d", n, i), "email": fmt.Sprintf("p%d-%d@%s", n, i, s.domain)}
					}
					return request{method: http.MethodPost, path: "/v1/recipients", body: encode(map[string]any{"recipients": people})}
				})
				return nil
			},
		},
		{
			name: "running-mailings", what: "20 mailings of 20,000 rows are uploaded and sent at the same time", uploads: true,
			misuse: func(ctx context.Context, s *scenario) error {
				_, err := s.uploadAll(ctx, s.scale(20, 4), s.scale(20_000, 2000), nil)
				<-ctx.Done()
				return err
			},
		},
	}
}

// uploadAll uploads mailings concurrently, and returns those that were accepted before ctx ended.
func (s *scenario) uploadAll(ctx context.Context, mailings, each int, fields map[string]string) (ids []uuid.UUID, err error) {
	var uploading sync.WaitGroup
	var mu sync.Mutex
	for n := range mailings {
		uploading.Go(func() {
			r, making := mailingRequest(fmt.Sprintf("lista-%d.csv", n), rows(s.domain, n*each, each), fields)
			if making != nil {
				return
			}
			for ctx.Err() == nil {
				got, failed := s.client.do(ctx, r)
				s.count(fmt.Sprintf("upload %d", got.status), 1)
				if failed != nil || got.status != http.StatusAccepted { // too many at the same time
					_ = service.Pause(ctx, uploadPause)
					continue
				}
				id, reading := mailingID(got)
				mu.Lock()
				ids, err = append(ids, id), reading
				mu.Unlock()
				return
			}
		})
	}
	uploading.Wait()
	return ids, err
}
