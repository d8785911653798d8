package email

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"

	"email-gateway/api/internal/client"
	"email-gateway/api/internal/ctl/output"
	"email-gateway/api/internal/ctl/tenant"
	"email-gateway/shared/email"
)

// sendResult is the result of email send --watch.
type sendResult struct{ emailView }

// Failure makes the command fail unless the email was sent.
func (v sendResult) Failure() error {
	if v.Status == email.Sent {
		return nil
	}
	return fmt.Errorf("the email is %s", v.Status)
}

// watchEmail polls the email until its status is final. It reports progress to p.
func watchEmail(ctx context.Context, api *client.Client, id uuid.UUID, p *output.Progress) (output.Result, error) {
	tick := time.NewTicker(output.RedrawInterval)
	defer tick.Stop()
	lastAnswer := time.Now()
	for {
		v, err := fetchEmail(ctx, api, id)
		switch {
		case ctx.Err() != nil:
			return nil, fmt.Errorf("interrupted; the email is still being processed: run `gatewayctl email show %s` to check it", id)
		case err == nil && v.Status.Final():
			p.End()
			return sendResult{v}, nil
		case err == nil:
			lastAnswer = time.Now()
			p.Update(output.Step{What: string(v.Status), Text: "since it was accepted " + output.Duration(time.Since(v.CreatedAt))})
		case !tenant.Transient(err) || time.Since(lastAnswer) > tenant.WatchTimeout:
			return nil, err
		}
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
	}
}
