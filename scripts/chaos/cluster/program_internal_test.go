package cluster

import (
	"bytes"
	"log/slog"
	"runtime/debug"
	"testing"
)

// A panic is found in the log of a program that ended and of one that recovered.
func TestPanicked(t *testing.T) {
	t.Parallel()
	var recovered bytes.Buffer
	slog.New(slog.NewJSONHandler(&recovered, nil)).Error("task panicked", "stack", string(debug.Stack()))
	for name, tt := range map[string]struct {
		log  string
		want bool
	}{
		"no panic":    {`{"message":"task failed","error":"panic button"}`, false},
		"panic":       {"panic: nil map\n\ngoroutine 1 [running]:\nmain.main()\n", true},
		"recovered":   {recovered.String(), true},
		"fatal error": {"x\nfatal error: all goroutines are asleep - deadlock!\n\ngoroutine 1 [select]:\n", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := Panicked([]byte(tt.log)); got != tt.want {
				t.Errorf("%v, want %v", got, tt.want)
			}
		})
	}
}
