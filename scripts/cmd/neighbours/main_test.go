package main_test

import (
	"testing"

	"email-gateway/scripts/local/programtest"
	"email-gateway/scripts/neighbours"
)

// The short run misuses and measures each of its resources, refuses no request of the quiet company, and exits with 0 if and
// only if every limit was met. The limits themselves are not tested: they depend on the machine and its other load.
func TestShort(t *testing.T) {
	var report neighbours.Report
	_, ok := programtest.Run(t, &report, "-short", "-measure", "2s")
	if missed := report.Missed(); ok != (len(missed) == 0) {
		t.Errorf("missed %v, the program exited with 0: %v", missed, ok)
	}
	if len(report.Rows) < 3 {
		t.Errorf("%d resources were measured", len(report.Rows))
	}
	for _, row := range report.Rows {
		if len(row.Misuse) == 0 {
			t.Errorf("%s: nothing was misused", row.Resource)
		}
		if row.Seen.Sending.Count == 0 {
			t.Errorf("%s: no email reached SES", row.Resource)
		}
		for kind, figures := range row.Seen.Requests {
			if figures.Count == 0 || len(figures.Refused) > 0 {
				t.Errorf("%s, %s: %d requests, refused: %v", row.Resource, kind, figures.Count, figures.Refused)
			}
		}
	}
}
