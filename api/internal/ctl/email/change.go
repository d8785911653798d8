package email

import (
	"context"
	"fmt"
	"io"

	"email-gateway/api/internal/client"
	"email-gateway/api/internal/ctl/output"
	"email-gateway/shared/email"
	"email-gateway/shared/store"
	"email-gateway/shared/store/emails"
)

// movedEmail is an email after it was cancelled or retried.
type movedEmail struct {
	emailView
	done string
}

func (v movedEmail) WriteText(w io.Writer) {
	fmt.Fprintf(w, "Email %s was %s and is %s now.\n", v.ID, v.done, v.Status)
	if !v.Status.Final() {
		fmt.Fprintf(w, "To follow it: gatewayctl email show %s\n", v.ID)
	}
}

// showMoved returns the email as it is after an operator changed it.
func showMoved(ctx context.Context, s *store.Store, before emails.Diagnosis, done string) (output.Result, error) {
	after, err := s.FindEmailDiagnosis(ctx, before.ID)
	if err != nil {
		return nil, err
	}
	events, err := s.Timeline(ctx, before.ID)
	if err != nil {
		return nil, err
	}
	view, err := viewEmail(after, events, email.MaxAttempts, false)
	return movedEmail{view, done}, err
}

// stepEmail calls the api's route that cancels or retries an email.
func stepEmail(ctx context.Context, api *client.Client, given, step, done string) (output.Result, error) {
	id, err := parseEmail(given)
	if err != nil {
		return nil, err
	}
	v := movedEmail{done: done}
	err = api.PostStep(ctx, emailPath+"/"+id.String()+"/"+step, &v.emailView)
	return v, err
}
