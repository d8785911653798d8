package event

import (
	"testing"

	"email-gateway/shared/store/internal/pg"
	"email-gateway/shared/store/internal/statementtest"
)

func statementFiles() statementtest.Package {
	return statementtest.Package{
		Name: "event", Folder: "../sql",
		Parameters: map[string][]pg.Parameter{
			"feed_events": eventsParameters.List(),
			"with_events": withEventsParameters.List(),
		},
	}
}

// The files of sql are generated from their templates and the descriptions of the parameters. With -update they are
// written (go generate).
func TestStatementFiles_AreGenerated(t *testing.T) {
	t.Parallel()
	statementtest.CheckGenerated(t, statementFiles())
}
