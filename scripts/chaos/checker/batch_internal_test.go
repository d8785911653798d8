package checker

import (
	"fmt"
	"slices"
	"testing"

	"email-gateway/scripts/chaos/load"
)

// Of a batch all emails are stored or none, as its response says.
func TestCheckBatches(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		batch  load.Batch
		stored []int // serials
		want   []string
	}{
		"accepted":                       {load.Batch{Outcome: load.AcceptedBatch}, []int{1, 2}, nil},
		"accepted, a part":               {load.Batch{Outcome: load.AcceptedBatch}, []int{2}, []string{PartOfBatch}},
		"accepted, none":                 {load.Batch{Outcome: load.AcceptedBatch}, nil, []string{Lost}},
		"refused":                        {load.Batch{Outcome: load.RefusedBatch}, nil, nil},
		"refused, all":                   {load.Batch{Outcome: load.RefusedBatch}, []int{1, 2}, []string{Promise}},
		"unclear, none":                  {load.Batch{Outcome: load.UnclearBatch}, nil, nil},
		"unclear, all":                   {load.Batch{Outcome: load.UnclearBatch}, []int{1, 2}, nil},
		"unclear, a part":                {load.Batch{Outcome: load.UnclearBatch}, []int{1}, []string{PartOfBatch}},
		"accepted with an invalid email": {load.Batch{Outcome: load.AcceptedBatch}, []int{1, 2, 3}, []string{Promise}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tt.batch.Valid, tt.batch.Invalid = []int{1, 2}, []int{3}
			c := New(nil, load.Records{Batches: []load.Batch{tt.batch}}, nil)
			for _, serial := range tt.stored {
				c.emails[fmt.Sprint(serial)] = &row{to: load.Address(serial)}
			}
			c.checkBatches()
			if got := promises(c.Findings); !slices.Equal(got, tt.want) {
				t.Errorf("%v, want %v", got, tt.want)
			}
		})
	}
}
