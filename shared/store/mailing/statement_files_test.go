package mailing

import (
	"testing"
	"text/template"

	"email-gateway/shared/store/internal/pg"
	"email-gateway/shared/store/internal/statementtest"
	"email-gateway/shared/store/outbox"
	"email-gateway/shared/store/recipient"
)

func statementFiles() statementtest.Package {
	return statementtest.Package{
		Name: "mailing", Folder: "../sql",
		Parameters: map[string][]pg.Parameter{
			"expand":                  expandParameters.List(),
			"insert_doubtful_entries": doubtfulParameters.List(),
			"insert_rejects":          rejectsParameters.List(),
			"size_files":              sizeFilesParameters.List(),
		},
		Fragments: template.FuncMap{
			"erasedAddress": func() string { return recipient.ErasedAddress },
			"insertJobSQL":  func() string { return insertJobSQL },
			"noDeadline":    func() string { return outbox.NoDeadlineSQL },
			"mergeSQL":      func() string { return recipient.MergeSQL },
		},
	}
}

// The files of sql are generated from their templates and the descriptions of the parameters. With -update they are
// written (go generate).
func TestStatementFiles_AreGenerated(t *testing.T) {
	t.Parallel()
	statementtest.CheckGenerated(t, statementFiles())
}
