package e2e_test

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"email-gateway/scripts/local/programs"
	"email-gateway/shared/servertest"
	"email-gateway/shared/store/storetest"
)

// A copy of the database that gatewayctl installation detach has made harmless, with all other settings of the
// original: its programs refuse the original's storage and Redis. With a Redis of its own it sends only after an
// operator has resumed sending.
func TestCopy_Detached(t *testing.T) {
	t.Parallel()
	s := startSystem(t, nil)
	s.await(s.send("antes@cliente.example", nil), "SENT") // the original's programs have marked Redis
	s.uploadFile([]byte("anexo"))
	s.dispatcher.stop()
	waiting := s.send("espera@cliente.example", nil)

	other := storetest.New(t)
	other.Run(t, "DROP SCHEMA public CASCADE")
	other.Run(t, "CREATE SCHEMA public")
	dump := exec.CommandContext(t.Context(), "sh", "-c", `pg_dump "$FROM" | psql --quiet --set=ON_ERROR_STOP=1 "$TO"`)
	dump.Env = append(os.Environ(), "FROM="+s.db.URL, "TO="+other.URL)
	if out, err := dump.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	gatewayctl := func(args ...string) error {
		out, err := programs.Output(t.Context(), append(os.Environ(), "DATABASE_URL="+other.URL), filepath.Join(s.bin, "gatewayctl"), args...)
		if err != nil {
			return fmt.Errorf("%w\n%s", err, out)
		}
		return nil
	}
	// It is refused at first: the worker's report in the copy is a few seconds old.
	eventually(t, func() error { return gatewayctl("installation", "detach", "--reason", "drill") })

	env := maps.Clone(s.env)
	env["DATABASE_URL"] = other.URL
	for _, name := range []string{"dispatcher", "worker"} {
		p := startProgram(t, name, env)
		eventually(t, func() error {
			for _, line := range []string{"wrong redis", "wrong storage"} {
				if !strings.Contains(p.logged(), line) {
					return fmt.Errorf("%s has not logged %q: %s", name, line, p.tail())
				}
			}
			return nil
		})
		p.stop()
	}
	env["REDIS_URL"] = servertest.Start(t, "redis").URL
	dispatcher := startProgram(t, "dispatcher", env)
	startProgram(t, "worker", env)
	eventually(t, func() error {
		if n := storetest.Ask[int](t, other, "SELECT count(*) FROM process_status WHERE updated_at > now() - interval '5 s' AND details -> 'redis' ->> 'status' = 'connected'"); n != 2 {
			return fmt.Errorf("%d programs report their Redis: %s", n, dispatcher.tail())
		}
		return nil
	})
	if n := len(s.ses.Requests(waiting)); n != 0 {
		t.Errorf("the copy has sent the email %d times", n)
	}
	if err := gatewayctl("lane", "resume", "--all"); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error {
		if n := len(s.ses.Requests(waiting)); n != 1 {
			return fmt.Errorf("sent %d times after sending was resumed: %s", n, dispatcher.tail())
		}
		return nil
	})
}
