package encryption

import (
	"testing"

	"email-gateway/shared/store/internal/pg"
	"email-gateway/shared/store/internal/statementtest"
)

func statementFiles() statementtest.Package {
	return statementtest.Package{
		Name: "encryption", Folder: "../sql",
		Parameters: map[string][]pg.Parameter{
			"reencrypt_emails":     reencryptParameters.List(),
			"reencrypt_entries":    reencryptParameters.List(),
			"reencrypt_recipients": reencryptParameters.List(),
		},
	}
}

// The files of sql are generated from their templates and the descriptions of the parameters. With -update they are
// written (go generate).
func TestStatementFiles_AreGenerated(t *testing.T) {
	t.Parallel()
	statementtest.CheckGenerated(t, statementFiles())
}
