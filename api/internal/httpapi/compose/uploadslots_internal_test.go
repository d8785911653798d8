package compose

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"email-gateway/api/internal/httpapi/problem"
)

// A content waits for a slot for less time than clients wait for a response, and the error is about files.
func TestFileSlots(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		holders []int // slots of each company that holds some
		want    problem.Problem
	}{
		"own slots":       {[]int{filesOfEach}, tooManyFilesOfCompany},
		"slots of others": {[]int{0, 1, 1, 1, 1}, tooManyFiles},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				enter, companies := NewFileSlots(), make([]uuid.UUID, len(tt.holders))
				for i, slots := range tt.holders {
					companies[i] = uuid.New()
					for range slots {
						if _, err := enter(t.Context(), companies[i]); err != nil {
							t.Fatal(err)
						}
					}
				}
				began := time.Now()
				_, err := enter(t.Context(), companies[0])
				if took := time.Since(began); problem.Of(err).Detail != tt.want.Detail || took > 15*time.Second {
					t.Errorf("%v after %s", err, took)
				}
			})
		})
	}
}
