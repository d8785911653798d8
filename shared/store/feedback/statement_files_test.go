package feedback

import (
	"strings"
	"testing"
	"text/template"

	"email-gateway/shared/email"
	"email-gateway/shared/store/internal/pg"
	"email-gateway/shared/store/internal/statementtest"
	"email-gateway/shared/store/recipient"
)

func statementFiles() statementtest.Package {
	return statementtest.Package{
		Name: "feedback", Folder: "../sql",
		Parameters: map[string][]pg.Parameter{
			"append_feedback":    appendParameters.List(),
			"read_feedback":      readParameters.List(),
			"take_feedback":      takeParameters.List(),
			"take_free_feedback": takeParameters.List(),
		},
		Fragments: template.FuncMap{
			"erasedAddress": func() string { return "'" + recipient.ErasedAddress + "'" },
			"feedbackEvents": func() string {
				var names []string
				for _, event := range email.FeedbackEvents() {
					names = append(names, "'"+string(event)+"'")
				}
				return strings.Join(names, ", ")
			},
		},
	}
}

// The files of sql are generated from their templates and the descriptions of the parameters. With -update they are
// written (go generate).
func TestStatementFiles_AreGenerated(t *testing.T) {
	t.Parallel()
	statementtest.CheckGenerated(t, statementFiles())
}
