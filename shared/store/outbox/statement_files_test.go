package outbox

import (
	"testing"
	"text/template"

	"email-gateway/shared/store/breaker"
	"email-gateway/shared/store/internal/pg"
	"email-gateway/shared/store/internal/statementtest"
	"email-gateway/shared/store/recipient"
)

func statementFiles() statementtest.Package {
	return statementtest.Package{
		Name: "outbox", Folder: "../sql",
		Parameters: map[string][]pg.Parameter{
			"accept":           acceptParameters.List(),
			"accept_scheduled": acceptParameters.List(),
			"advance":          advanceParameters.List(),
			"advance_plain":    plainParameters.List(),
			"advance_waiting":  advanceParameters.List(),
			"load":             loadParameters.List(),
			"take_keys":        takeKeysParameters.List(),
		},
		Fragments: template.FuncMap{
			"erasedAddress":   func() string { return recipient.ErasedAddress },
			"breakerIsClosed": func() string { return breaker.IsClosedSQL },
			"breakerProbe":    func() string { return breaker.ProbeSQL },
			"breakerOpenings": func() string { return breaker.OpeningsSQL },
			"farthestLease":   func() string { return pg.FarthestLeaseSQL },
			"noDeadline":      func() string { return NoDeadlineSQL },
			"mergeSQL":        func() string { return recipient.MergeSQL },
		},
	}
}

// The files of sql are generated from their templates and the descriptions of the parameters. With -update they are
// written (go generate).
func TestStatementFiles_AreGenerated(t *testing.T) {
	t.Parallel()
	statementtest.CheckGenerated(t, statementFiles())
}
