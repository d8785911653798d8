package e2e_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"email-gateway/shared/store/storetest"
)

// Every command in OPERATIONS.md that pauses lanes of a company stops its mailing, and none stops its single emails.
func TestRunbook_PausesMailingsOnly(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join(rootDir, "OPERATIONS.md"))
	if err != nil {
		t.Fatal(err)
	}
	commands := regexp.MustCompile("`gatewayctl (lane pause --company [^`]+)`").FindAllStringSubmatch(string(text), -1)
	if len(commands) == 0 {
		t.Fatal("OPERATIONS.md has no command that pauses the lanes of a company")
	}
	s := startSystem(t, bulk(t, brokerURL(t)))
	for i, command := range commands {
		s.gatewayctl("lane", "pause", "--all", "--reason", "until the mailing is expanded")
		mailing := s.mail(fmt.Sprintf("natal%d.csv", i), newSpreadsheet(t, 5), nil)
		s.awaitMailing(mailing, "SENDING")
		words := strings.Fields(strings.NewReplacer("<name>", "Acme", "<company>", "Acme", "<id>", mailing).Replace(command[1]))
		s.gatewayctl(words...)
		s.gatewayctl("lane", "resume", "--all")
		s.await(s.send("ana@cliente.example", nil), "SENT")
		if n := storetest.Ask[int](s.t, s.db, "SELECT count(*) FROM email_outbox WHERE lane_id = (SELECT id FROM dispatch_lanes WHERE mailing_id = '"+mailing+"') AND status IN ('PROCESSING', 'SENT')"); n > 0 {
			t.Errorf("%d emails of the mailing are sent after gatewayctl %s", n, command[1])
		}
		s.gatewayctl("lane", "resume", "--company", "Acme")
		s.awaitMailing(mailing, "COMPLETED")
	}
}
