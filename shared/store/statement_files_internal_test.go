package store

import (
	"testing"
	"text/template"

	"email-gateway/shared/store/breaker"
	"email-gateway/shared/store/internal/intake"
	"email-gateway/shared/store/internal/pg"
	"email-gateway/shared/store/internal/statementtest"
	"email-gateway/shared/store/recipient"
)

func statementFiles() statementtest.Package {
	return statementtest.Package{
		Name: "store", Folder: "sql",
		Parameters: map[string][]pg.Parameter{
			"expand":                  expandParameters.List(),
			"insert_doubtful_entries": doubtfulParameters.List(),
			"insert_rejects":          rejectsParameters.List(),
			"release":                 releaseParameters.List(),
			"size_files":              sizeFilesParameters.List(),
		},
		Fragments: template.FuncMap{
			"erasedAddress":   func() string { return ErasedAddress },
			"gateIsOpen":      func() string { return breaker.IsOpenSQL },
			"gateProbe":       func() string { return breaker.ProbeSQL },
			"gateShutTurn":    func() string { return breaker.ShutTurnSQL },
			"insertJobSQL":    func() string { return insertJobSQL },
			"intakePersonSQL": func() string { return intake.PersonSQL },
			"personSQL":       func() string { return recipient.PersonSQL },
		},
	}
}

// The files of sql are what their templates and the descriptions of the parameters say. With -update they are
// written (go generate).
func TestStatementFiles_AreGenerated(t *testing.T) {
	t.Parallel()
	statementtest.CheckGenerated(t, statementFiles())
}

// The function that lays a column out makes an array of the type that is written beside it.
func TestStatementFiles_ColumnsHaveTheirType(t *testing.T) {
	t.Parallel()
	statementtest.CheckColumns(t, statementFiles())
}
