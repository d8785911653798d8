package pg_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"email-gateway/shared/store/internal/pg"
)

func TestPieces(t *testing.T) {
	t.Parallel()
	const mebibyte = 1 << 20
	for name, tt := range map[string]struct {
		rows []int // their sizes
		want []int // how many each piece has
	}{
		"none":            {nil, nil},
		"one":             {[]int{5}, []int{1}},
		"many small rows": {make([]int, 600), []int{256, 256, 88}},
		"a full mebibyte": {[]int{mebibyte / 2, mebibyte / 2, 1}, []int{2, 1}},
		"too large":       {[]int{1, 2 * mebibyte, 1, 1}, []int{1, 1, 2}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var got []int
			for piece := range pg.Pieces(tt.rows, func(n int) int { return n }) {
				got = append(got, len(piece))
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}
