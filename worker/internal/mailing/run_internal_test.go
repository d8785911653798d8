package mailing

import (
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"

	"email-gateway/shared/email"
	"email-gateway/shared/store/lane"
	mailingstore "email-gateway/shared/store/mailing"
)

// A batch wakes the lanes that it has written to, and no other lane of the company.
func TestRun_Written(t *testing.T) {
	t.Parallel()
	r := &run{job: &mailingstore.Job{ID: uuid.New(), CompanyID: uuid.New()}}
	emails := lane.Lanes{Company: r.job.CompanyID, Queue: email.QueueLow, Mailing: r.job.ID}
	jobs := lane.Lanes{Company: r.job.CompanyID, Queue: email.QueueMailings}
	for name, tt := range map[string]struct {
		queued int
		next   *mailingstore.Continuation
		want   []lane.Lanes
	}{
		"nothing":                 {},
		"a job for later":         {next: &mailingstore.Continuation{Delay: time.Second}},
		"a job":                   {next: &mailingstore.Continuation{}, want: []lane.Lanes{jobs}},
		"emails":                  {queued: 1, want: []lane.Lanes{emails}},
		"emails and a job":        {queued: 1, next: &mailingstore.Continuation{}, want: []lane.Lanes{emails, jobs}},
		"emails, a job for later": {queued: 1, next: &mailingstore.Continuation{Delay: time.Second}, want: []lane.Lanes{emails}},
	} {
		if got := r.written(mailingstore.Expansion{Continue: tt.next}, tt.queued); !slices.Equal(got, tt.want) {
			t.Errorf("%s: %v, want %v", name, got, tt.want)
		}
	}
}
