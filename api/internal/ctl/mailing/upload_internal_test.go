package mailing

import (
	"strings"
	"testing"
	"time"
)

func TestUploadSteps(t *testing.T) {
	t.Parallel()
	const size = 64 << 20
	show, now := uploadSteps(size), time.Unix(1_800_000_000, 0)
	for _, s := range []struct {
		after time.Duration
		sent  int64
		want  string
	}{
		{0, 0, "Uploading   0 %|0.0 MiB of 64.0 MiB"},
		{time.Second, 16 << 20, "Uploading  25 %|16.0 MiB of 64.0 MiB, 16.0 MiB/s, 3.0 s left"},
		{time.Second, 32 << 20, "Uploading  50 %|32.0 MiB of 64.0 MiB, 16.0 MiB/s, 2.0 s left"},
		{5 * time.Second, 32 << 20, "Uploading  50 %|32.0 MiB of 64.0 MiB"}, // stalled
		{time.Second, size, "Uploaded 64.0 MiB; the gateway is reading the lines|0 ms so far"},
		{2 * time.Second, size, "Uploaded 64.0 MiB; the gateway is reading the lines|2.0 s so far"},
	} {
		now = now.Add(s.after)
		if got := strings.Join(show(now, s.sent).Words(), "|"); got != s.want {
			t.Errorf("%d sent: %q, want %q", s.sent, got, s.want)
		}
	}
	if got := strings.Join(uploadSteps(-1)(now, 5<<20).Words(), "|"); got != "Uploading|5.0 MiB" {
		t.Errorf("from a pipe: %q", got)
	}
}
