package checker

import (
	"slices"
	"testing"

	"github.com/google/uuid"

	"email-gateway/scripts/chaos/load"
)

// Each broken promise is a finding, and behaviour that the promises allow is not.
func TestCheckEmail(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		row   row
		times int
		want  []string
	}{
		"sent once":                          {row{status: "SENT"}, 1, nil},
		"sent and not accepted":              {row{status: "SENT"}, 0, []string{Lost}},
		"unfinished":                         {row{status: "RETRY_SCHEDULED"}, 0, []string{Lost}},
		"accepted twice":                     {row{status: "SENT"}, 2, []string{Duplicate}},
		"accepted twice, flagged":            {row{status: "SENT", duplicate: true, logDuplicate: true}, 2, nil},
		"at most once, twice":                {row{status: "SENT", delivery: "at_most_once", duplicate: true, logDuplicate: true}, 2, []string{Duplicate}},
		"at most once, replayed by a tenant": {row{status: "SENT", delivery: "at_most_once", duplicate: true, logDuplicate: true, timeline: &timeline{replayedUnknown: true}}, 2, nil},
		"sent and delivered":                 {row{status: "SENT", lastEvent: "DELIVERED"}, 1, nil},
		"failed and delivered":               {row{status: "FAILED", lastEvent: "DELIVERED"}, 0, []string{InvalidEvents}},
		"after its deadline":                 {row{status: "SENT", late: true}, 1, []string{Deadline}},
		"feedback after its deadline":        {row{status: "SENT", late: true, timeline: &timeline{endedByFeedback: true}}, 1, nil},
		"sent after its deadline, feedback":  {row{status: "SENT", late: true, timeline: &timeline{clearedByFeedback: true}}, 1, []string{Deadline}},
		"failed":                             {row{status: "FAILED"}, 0, nil},
		"failed and accepted":                {row{status: "FAILED"}, 1, []string{NotRecorded}},
		"failed, unknown":                    {row{status: "FAILED", unknown: true}, 1, nil},
		"failed, unknown, twice":             {row{status: "FAILED", unknown: true}, 2, []string{Duplicate}},
		"cancelled and accepted":             {row{status: "CANCELLED"}, 1, []string{NotRecorded}},
		"log out of date":                    {row{status: "SENT", logStatus: "FAILED"}, 1, []string{InvalidEvents}},
		"event out of date":                  {row{status: "SENT", lastEvent: "RETRY_SCHEDULED"}, 1, []string{InvalidEvents}},
		"flagged in the outbox only":         {row{status: "SENT", duplicate: true}, 1, []string{InvalidEvents}},
		"flagged although sent once":         {row{status: "SENT", duplicate: true, logDuplicate: true}, 1, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := New(nil, load.Records{}, nil)
			r := tt.row
			if r.timeline == nil {
				r.timeline = new(timeline)
			}
			if r.logStatus == "" {
				r.logStatus = r.status
			}
			if r.lastEvent == "" {
				r.lastEvent = r.status
			}
			c.checkEmail(&r, tt.times)
			if got := promises(c.Findings); !slices.Equal(got, tt.want) {
				t.Errorf("found %q, want %q", got, tt.want)
			}
		})
	}
}

func TestCheckAnswers(t *testing.T) {
	t.Parallel()
	id, other := uuid.Must(uuid.NewV7()), uuid.Must(uuid.NewV7())
	mine := func() *row {
		return &row{id: id.String(), status: "SENT", to: load.Address(1), delivery: "at_least_once"}
	}
	accepted := map[int]load.Accepted{1: {Serial: 1, ID: id}}
	for name, tt := range map[string]struct {
		records load.Records
		rows    []*row
		want    []string
	}{
		"kept":                                {load.Records{Emails: accepted}, []*row{mine()}, nil},
		"no row":                              {load.Records{Emails: accepted}, nil, []string{Lost}},
		"two rows":                            {load.Records{Emails: accepted}, []*row{mine(), {id: other.String(), to: load.Address(1)}}, []string{TwoRows}},
		"another email's row":                 {load.Records{Emails: map[int]load.Accepted{2: {Serial: 2, ID: id}}}, []*row{mine()}, []string{Promise}},
		"another delivery":                    {load.Records{Emails: map[int]load.Accepted{1: {Serial: 1, ID: id, AtMostOnce: true}}}, []*row{mine()}, []string{Promise}},
		"cancelled and sent":                  {load.Records{Emails: accepted, Cancelled: map[uuid.UUID]bool{id: true}}, []*row{mine()}, []string{Promise}},
		"cancelled, unknown outcome accepted": {load.Records{Emails: accepted, Cancelled: map[uuid.UUID]bool{id: true}}, []*row{inDoubt(mine())}, nil},
		"refused":                             {load.Records{Refused: []string{"carta-1: 422"}}, nil, []string{Promise}},
		"no response":                         {load.Records{Unanswered: []string{"carta-1"}}, nil, []string{Promise}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := New(nil, tt.records, nil)
			for _, r := range tt.rows {
				c.emails[r.id] = r
			}
			c.checkAnswers()
			if got := promises(c.Findings); !slices.Equal(got, tt.want) {
				t.Errorf("found %q, want %q", got, tt.want)
			}
		})
	}
}

func TestCheckDuplicates(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		counts Counts
		want   []string
	}{
		"none":                {Counts{Taken: 1000}, nil},
		"at the limit":        {Counts{Taken: 10_000, Duplicates: 30}, nil},
		"too many":            {Counts{Taken: 10_000, Duplicates: 31}, []string{TooManyDuplicates}},
		"few, in a short run": {Counts{Taken: 100, Duplicates: 10}, nil},
		"nothing accepted":    {Counts{}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := New(nil, load.Records{}, nil)
			c.Counts = tt.counts
			c.checkDuplicates()
			if got := promises(c.Findings); !slices.Equal(got, tt.want) {
				t.Errorf("found %q, want %q", got, tt.want)
			}
		})
	}
}

func inDoubt(r *row) *row {
	r.timeline = &timeline{uncertain: true}
	return r
}

func promises(f *Findings) []string {
	var list []string
	for _, found := range f.list() {
		list = append(list, found.Promise)
	}
	return list
}
