package dispatch

import (
	"testing"
	"text/template"

	"email-gateway/shared/store/breaker"
	"email-gateway/shared/store/internal/pg"
	"email-gateway/shared/store/internal/statementtest"
)

func statementFiles() statementtest.Package {
	return statementtest.Package{
		Name: "dispatch", Folder: "../sql",
		Parameters: map[string][]pg.Parameter{
			"lease_jobs":  leaseJobsParameters.List(),
			"named_lanes": namedLanesParameters.List(),
			"release":     releaseParameters.List(),
			"take_due":    takeDueParameters.List(),
		},
		Fragments: template.FuncMap{
			"breakerProbe":    func() string { return breaker.ProbeSQL },
			"breakerIsClosed": func() string { return breaker.IsClosedSQL },
			"hadTask":         func() string { return hadTaskSQL },
			"isDue":           func() string { return dueSQL },
			"jobLease":        func() string { return leaseSQL },
			"laneWaits":       func() string { return waitSQL },
		},
	}
}

// The files of sql are generated from their templates and the descriptions of the parameters. With -update they are
// written (go generate).
func TestStatementFiles_AreGenerated(t *testing.T) {
	t.Parallel()
	statementtest.CheckGenerated(t, statementFiles())
}
