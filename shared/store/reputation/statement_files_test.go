package reputation

import (
	"testing"

	"email-gateway/shared/store/internal/pg"
	"email-gateway/shared/store/internal/statementtest"
)

func statementFiles() statementtest.Package {
	return statementtest.Package{
		Name: "reputation", Folder: "../sql",
		Parameters: map[string][]pg.Parameter{
			"add_sends":               addSendsParameters.List(),
			"set_reputation_defaults": defaultsParameters.List(),
		},
	}
}

// The files of sql are generated from their templates and the descriptions of the parameters. With -update they are
// written (go generate).
func TestStatementFiles_AreGenerated(t *testing.T) {
	t.Parallel()
	statementtest.CheckGenerated(t, statementFiles())
}
