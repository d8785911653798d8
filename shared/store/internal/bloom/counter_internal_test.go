package bloom

import (
	"fmt"
	"testing"
)

// Ids of two rows are not counted, although the filter takes some of so many ids for known ones, and do not keep out an id
// of many rows that comes last. Letter case distinguishes ids.
func TestCounter(t *testing.T) {
	t.Parallel()
	var c Counter
	c.Add("")
	for i := range 150_000 {
		for _, id := range []string{"a", "A"} {
			c.Add(fmt.Sprint(id, i))
			c.Add(fmt.Sprint(id, i))
		}
		if i%10_000 > 0 {
			continue
		}
		if n := c.Rows(); n != 0 {
			t.Fatalf("%d rows after %d ids of two rows", n, 2*i+2)
		}
	}
	for range 8000 {
		c.Add("sem id")
	}
	if n := c.Rows(); n < 8000 || n > 8001 {
		t.Errorf("%d rows, want 8000", n)
	}
}
