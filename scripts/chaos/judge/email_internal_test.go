package judge

import (
	"slices"
	"testing"

	"github.com/google/uuid"

	"email-gateway/scripts/chaos/load"
)

// A judge that finds nothing proves nothing: each promise, broken, is found, and what
// the promises allow is not.
func TestTryEmail(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		row   row
		times int
		want  []string
	}{
		"sent once":                            {row{status: "SENT"}, 1, nil},
		"sent and never taken":                 {row{status: "SENT"}, 0, []string{Lost}},
		"still on its way":                     {row{status: "RETRY_SCHEDULED"}, 0, []string{Lost}},
		"taken twice":                          {row{status: "SENT"}, 2, []string{Duplicate}},
		"taken twice, announced":               {row{status: "SENT", duplicate: true, logDuplicate: true}, 2, nil},
		"at most once, twice":                  {row{status: "SENT", delivery: "at_most_once", duplicate: true, logDuplicate: true}, 2, []string{Duplicate}},
		"at most once, sent again by a person": {row{status: "SENT", delivery: "at_most_once", duplicate: true, logDuplicate: true, timeline: &timeline{again: true}}, 2, nil},
		"sent and delivered":                   {row{status: "SENT", lastEvent: "DELIVERED"}, 1, nil},
		"failed and delivered":                 {row{status: "FAILED", lastEvent: "DELIVERED"}, 0, []string{Path}},
		"behind its deadline":                  {row{status: "SENT", late: true}, 1, []string{Deadline}},
		"told behind its deadline":             {row{status: "SENT", late: true, timeline: &timeline{told: true}}, 1, nil},
		"failed":                               {row{status: "FAILED"}, 0, nil},
		"failed and taken":                     {row{status: "FAILED"}, 1, []string{Denied}},
		"failed, unknown":                      {row{status: "FAILED", unknown: true}, 1, nil},
		"failed, unknown, twice":               {row{status: "FAILED", unknown: true}, 2, []string{Duplicate}},
		"cancelled and taken":                  {row{status: "CANCELLED"}, 1, []string{Denied}},
		"log behind":                           {row{status: "SENT", logStatus: "FAILED"}, 1, []string{Path}},
		"event behind":                         {row{status: "SENT", lastEvent: "RETRY_SCHEDULED"}, 1, []string{Path}},
		"announced in the outbox only":         {row{status: "SENT", duplicate: true}, 1, []string{Path}},
		"announced although it came but once":  {row{status: "SENT", duplicate: true, logDuplicate: true}, 1, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			j := New(nil, load.Notes{}, nil)
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
			j.tryEmail(&r, tt.times)
			if got := promises(j); !slices.Equal(got, tt.want) {
				t.Errorf("found %q, want %q", got, tt.want)
			}
		})
	}
}

func TestTryAnswers(t *testing.T) {
	t.Parallel()
	id, other := uuid.Must(uuid.NewV7()), uuid.Must(uuid.NewV7())
	mine := func() *row {
		return &row{id: id.String(), status: "SENT", to: load.Address(1), delivery: "at_least_once"}
	}
	accepted := map[int]load.Accepted{1: {Serial: 1, ID: id}}
	for name, tt := range map[string]struct {
		notes load.Notes
		rows  []*row
		want  []string
	}{
		"kept":                            {load.Notes{Emails: accepted}, []*row{mine()}, nil},
		"no row":                          {load.Notes{Emails: accepted}, nil, []string{Lost}},
		"two rows":                        {load.Notes{Emails: accepted}, []*row{mine(), {id: other.String(), to: load.Address(1)}}, []string{TwoRows}},
		"somebody else's":                 {load.Notes{Emails: map[int]load.Accepted{2: {Serial: 2, ID: id}}}, []*row{mine()}, []string{Promise}},
		"another delivery":                {load.Notes{Emails: map[int]load.Accepted{1: {Serial: 1, ID: id, AtMostOnce: true}}}, []*row{mine()}, []string{Promise}},
		"cancelled and sent":              {load.Notes{Emails: accepted, Cancelled: map[uuid.UUID]bool{id: true}}, []*row{mine()}, []string{Promise}},
		"to a suppressed address, kept":   {load.Notes{Emails: map[int]load.Accepted{1: {Serial: 1, ID: id, Suppressed: true}}}, []*row{with(mine(), suppressed)}, nil},
		"to a suppressed address, sent":   {load.Notes{Emails: map[int]load.Accepted{1: {Serial: 1, ID: id, Suppressed: true}}}, []*row{mine()}, []string{Promise}},
		"suppressed, and nobody wants it": {load.Notes{Emails: accepted}, []*row{with(mine(), suppressed)}, []string{Promise}},
		"cancelled, and taken in doubt":   {load.Notes{Emails: accepted, Cancelled: map[uuid.UUID]bool{id: true}}, []*row{inDoubt(mine())}, nil},
		"refused":                         {load.Notes{Refused: []string{"carta-1: 422"}}, nil, []string{Promise}},
		"never answered":                  {load.Notes{Open: []string{"carta-1"}}, nil, []string{Promise}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			j := New(nil, tt.notes, nil)
			for _, r := range tt.rows {
				j.emails[r.id] = r
			}
			j.tryAnswers()
			if got := promises(j); !slices.Equal(got, tt.want) {
				t.Errorf("found %q, want %q", got, tt.want)
			}
		})
	}
}

func TestTryDuplicates(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		counts Counts
		want   []string
	}{
		"none":                {Counts{Taken: 1000}, nil},
		"at the edge":         {Counts{Taken: 10_000, Duplicates: 30}, nil},
		"too many":            {Counts{Taken: 10_000, Duplicates: 31}, []string{Repeated}},
		"few, in a short run": {Counts{Taken: 100, Duplicates: 10}, nil},
		"nothing was taken":   {Counts{}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			j := New(nil, load.Notes{}, nil)
			j.Counts = tt.counts
			j.tryDuplicates()
			if got := promises(j); !slices.Equal(got, tt.want) {
				t.Errorf("found %q, want %q", got, tt.want)
			}
		})
	}
}

func with(r *row, status string) *row {
	r.status = status
	return r
}

func inDoubt(r *row) *row {
	r.timeline = &timeline{uncertain: true}
	return r
}

func promises(j *Judge) []string {
	var list []string
	for _, f := range j.findings() {
		list = append(list, f.Promise)
	}
	return list
}
