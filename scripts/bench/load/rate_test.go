package load

import (
	"errors"
	"slices"
	"sync"
	"testing"
)

func TestMeasureRate(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var done []int64
	rate, err := MeasureRate(4, 100, func(piece int64) error {
		mu.Lock()
		defer mu.Unlock()
		done = append(done, piece)
		return nil
	})
	if slices.Sort(done); err != nil || rate <= 0 || len(done) != 100 || done[0] != 0 || done[99] != 99 {
		t.Errorf("%v pieces at %v a second, %v", done, rate, err)
	}
	refused := errors.New("refused")
	if _, err := MeasureRate(4, 100, func(piece int64) error {
		if piece == 50 {
			return refused
		}
		return nil
	}); !errors.Is(err, refused) {
		t.Errorf("%v, not the error of a piece", err)
	}
}
