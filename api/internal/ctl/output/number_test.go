package output

import "testing"

func TestThousands(t *testing.T) {
	t.Parallel()
	for n, want := range map[int]string{0: "0", 999: "999", 1000: "1,000", 96998: "96,998", 1234567: "1,234,567", -1234: "-1,234", -123: "-123"} {
		if got := Thousands(n); got != want {
			t.Errorf("%d is %s, want %s", n, got, want)
		}
	}
}
