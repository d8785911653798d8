package recipient

import (
	"testing"
	"text/template"

	"email-gateway/shared/store/internal/pg"
	"email-gateway/shared/store/internal/statementtest"
)

func statementFiles() statementtest.Package {
	return statementtest.Package{
		Name: "recipient", Folder: "../sql",
		Parameters: map[string][]pg.Parameter{
			"accept_recipients":      intakeParameters.List(),
			"known_recipients":       knownParameters.List(),
			"upsert_free_recipients": upsertParameters.List(),
			"upsert_recipients":      upsertParameters.List(),
		},
		Fragments: template.FuncMap{
			"intakeIDSQL": func() string { return IntakeIDSQL },
			"mergeSQL":    func() string { return MergeSQL },
		},
	}
}

// The files of sql are generated from their templates and the descriptions of the parameters. With -update they are
// written (go generate).
func TestStatementFiles_AreGenerated(t *testing.T) {
	t.Parallel()
	statementtest.CheckGenerated(t, statementFiles())
}
