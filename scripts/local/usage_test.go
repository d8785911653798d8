package local

import (
	"bufio"
	"os"
	"os/exec"
	"testing"
)

// A process's time includes that of its children, running and exited.
func TestUsage(t *testing.T) {
	t.Parallel()
	busy := `n=0; while [ $n -lt 200000 ]; do n=$((n+1)); done`
	cmd := exec.Command("sh", "-c", busy+`; sh -c '`+busy+`'; echo done; read line`)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	u, err := UsageOf(cmd.Process.Pid)
	if err != nil || u.CPU <= 0 || u.CPU%tick != 0 || u.Resident <= 0 || u.Peak < u.Resident {
		t.Errorf("the usage is %+v, %v", u, err)
	}
	if whole, err := UsageOf(os.Getpid()); err != nil || whole.CPU < u.CPU {
		t.Errorf("the usage with its child is %+v, %v; of the child alone %+v", whole, err, u)
	}
	if err := in.Close(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // read fails at the end of its input
	if _, err := UsageOf(cmd.Process.Pid); err == nil {
		t.Error("an exited process has a usage")
	}
}

func TestReadStat(t *testing.T) {
	t.Parallel()
	line := "4711 (a) (name) S 12 4711 4711 0 -1 4194560 1 2 3 4 100 20 3 4 20 0 1 0 5 6 7"
	pid, parent, spent, err := readStat([]byte(line))
	if err != nil || pid != 4711 || parent != 12 || spent != 127*tick {
		t.Errorf("%d, %d, %s, %v", pid, parent, spent, err)
	}
	for _, broken := range []string{"", "1 (x) S", "x (y) S 12 4711 4711 0 -1 4194560 1 2 3 4 100 20 3 4 20"} {
		if _, _, _, err := readStat([]byte(broken)); err == nil {
			t.Errorf("%q is read", broken)
		}
	}
}
