package e2e_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// localService is a Postgres, Redis or RabbitMQ of the test's own, so that it may be
// stopped and killed.
type localService struct {
	t    *testing.T
	name string
	dir  string
	url  string
	env  []string // of services.sh, on top
}

func startService(t *testing.T, name string, env ...string) localService {
	t.Helper()
	s := localService{t: t, name: name, dir: t.TempDir(), env: env}
	s.begin()
	return s
}

// begin starts it for the first time, and ends it with the test.
func (s *localService) begin() {
	s.t.Helper()
	s.run("start")
	s.t.Cleanup(func() { s.run("destroy") })
	line, _, _ := strings.Cut(s.run("env"), "\n")
	_, value, _ := strings.Cut(line, "_URL=")
	s.url = strings.Trim(value, `'"`)
}

func (s localService) start()   { s.run("start") }
func (s localService) stop()    { s.run("stop") }
func (s localService) restart() { s.run("restart") }

// crash kills it and starts it again.
func (s localService) crash() {
	s.run("kill")
	s.run("start")
}

// run runs a command of services.sh on this one service.
func (s localService) run(command string) string {
	s.t.Helper()
	return s.script(command, s.name)
}

// rabbitmqctl runs the broker's own tool.
func (s localService) rabbitmqctl(args ...string) string {
	s.t.Helper()
	return s.script(append([]string{"rabbitmqctl"}, args...)...)
}

func (s localService) script(args ...string) string {
	s.t.Helper()
	cmd := exec.Command(filepath.Join(rootDir, "scripts/services.sh"), args...)
	cmd.Env = os.Environ()
	for _, name := range []string{"POSTGRES_PORT", "REDIS_PORT", "RABBITMQ_PORT", "DATABASE_URL", "REDIS_URL", "RABBITMQ_URL"} {
		cmd.Env = append(cmd.Env, name+"=")
	}
	cmd.Env = append(append(cmd.Env, "LOCAL_DIR="+s.dir), s.env...)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		s.t.Fatalf("services.sh %s: %v\n%s", strings.Join(args, " "), err, stderr.String())
	}
	return string(out)
}
