package bloom

import (
	"fmt"
	"testing"
)

// The filter may be wrong in one direction only, and must not be too often.
func TestFilter(t *testing.T) {
	t.Parallel()
	f := NewFilter()
	wrong := 0
	for i := range 200000 {
		if f.Add(fmt.Sprintf("User%d@Example.com", i)) {
			wrong++
		}
	}
	if wrong > 100 { // 20 are expected
		t.Errorf("%d new addresses taken for old ones", wrong)
	}
	for i := range 200000 {
		if !f.Add(fmt.Sprintf("uSER%d@example.COM", i)) {
			t.Fatalf("the filter does not contain the added address %d", i)
		}
	}
	for _, pair := range [][2]string{{"\u212Aevin@x", "kevin@x"}, {"\u0130zmir@x", "izmir@x"}} {
		f.Add(pair[0])
		if !f.Add(pair[1]) {
			t.Errorf("%q and %q can be equal in lower case", pair[0], pair[1])
		}
	}
}
