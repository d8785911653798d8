package e2e_test

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"email-gateway/shared/servertest"
	"email-gateway/shared/store/storetest"
)

// smallDisk mounts a small file system; it needs root.
func smallDisk(t *testing.T, size string) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root can mount a disk that is small enough to be filled")
	}
	dir, err := os.MkdirTemp("", "email-gateway-disk-")
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "mode=711,size="+size); err != nil {
		_ = os.Remove(dir)
		if errors.Is(err, syscall.EPERM) { // a root without that right, as in a container
			t.Skipf("no disk can be mounted here, so a full one is not tested: %v", err)
		}
		t.Fatalf("mount a small disk: %v", err)
	}
	t.Cleanup(func() {
		// Nothing uses it any more; otherwise it is unmounted when its last user ends.
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Errorf("unmount: %v", err)
		}
		_ = os.Remove(dir)
	})
	return dir
}

// fill uses the free space of a disk except for some bytes, and returns a function that frees it.
func fill(t *testing.T, dir string, but int64) (free func()) {
	t.Helper()
	var disk syscall.Statfs_t
	if err := syscall.Statfs(dir, &disk); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "filler")
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	if left := int64(disk.Bavail)*disk.Bsize - but; left > 0 {
		if err := syscall.Fallocate(int(file.Fd()), 0, 0, left); err != nil {
			t.Fatal(err)
		}
	}
	return func() {
		if err := os.Remove(path); err != nil {
			t.Error(err)
		}
	}
}

// bulky is an email that compression does not make smaller.
func bulky(t *testing.T) map[string]any {
	t.Helper()
	noise := make([]byte, 250<<10)
	if _, err := rand.Read(noise); err != nil {
		t.Fatal(err)
	}
	return newBody("ana@example.com", func(b map[string]any) { b["text"] = hex.EncodeToString(noise) })
}

// The disk of Postgres's tables is full: what does not fit is refused completely, with a 503 that asks to retry;
// accepted emails are kept, and everything continues when there is space.
func TestDiskFull_Tables(t *testing.T) {
	t.Parallel()
	disk := smallDisk(t, "12m")
	s := startSystemOn(t, storetest.NewOn(t, servertest.Start(t, "postgres").URL), nil)
	if err := os.Chmod(disk, 0o777); err != nil { // Postgres runs as a user of its own
		t.Fatal(err)
	}
	space := filepath.Join(disk, "space")
	asPostgres(s, space)
	s.db.Run(s.t, "CREATE TABLESPACE small LOCATION '"+space+"'")
	s.db.Run(s.t, "ALTER TABLE email_outbox SET TABLESPACE small")
	s.await(s.send("primeira@example.com", nil), "SENT")
	s.dispatcher.stop() // what has been accepted is to lie there

	accepted := 1
	var status int
	var answer []byte
	for range 300 {
		if status, answer = s.call(http.MethodPost, "/v1/email/send", bulky(t), map[string]string{"Idempotency-Key": fmt.Sprint("k-", accepted)}); status != http.StatusAccepted {
			break
		}
		accepted++
	}
	if status != http.StatusServiceUnavailable || !strings.Contains(string(answer), `"DATABASE_UNAVAILABLE"`) {
		t.Errorf("the disk is full after %d emails: %d %s", accepted, status, answer)
	}
	nothingHalfDone(s, accepted)
	if status, body := fetch(t, "http://"+s.api.addr+"/livez"); status != http.StatusOK {
		t.Errorf("livez: %d %s", status, body)
	}
	s.db.Run(s.t, "ALTER TABLE email_outbox SET TABLESPACE pg_default") // more room
	if status, answer = s.call(http.MethodPost, "/v1/email/send", bulky(t), map[string]string{"Idempotency-Key": fmt.Sprint("k-", accepted)}); status != http.StatusAccepted {
		t.Errorf("with room again: %d %s", status, answer)
	}
	nothingHalfDone(s, accepted+1)
	s.dispatcher = startProgram(t, "dispatcher", s.env)
	s.awaitAll(accepted+1, "SENT")
	s.sentOnce(accepted + 1)
}

// The whole disk of Postgres is full: it cannot write its WAL and stops. The api answers 503 and keeps running; when
// there is space and Postgres is back, every 202 is stored and becomes an email.
func TestDiskFull_Postgres(t *testing.T) {
	t.Parallel()
	disk := smallDisk(t, "192m")
	postgres := servertest.StartIn(t, disk, "postgres")
	s := startSystemOn(t, storetest.NewOn(t, postgres.URL), nil)
	s.await(s.send("primeira@example.com", nil), "SENT")
	s.dispatcher.stop()
	s.worker.stop()
	free := fill(t, disk, 1<<20)

	accepted, status := 1, 0
	var answer []byte
	for range 300 {
		if status, answer = s.call(http.MethodPost, "/v1/email/send", bulky(t), nil); status != http.StatusAccepted {
			break
		}
		accepted++
	}
	if status != http.StatusServiceUnavailable || !strings.Contains(string(answer), `"DATABASE_UNAVAILABLE"`) && !strings.Contains(string(answer), `"ACCEPT_UNKNOWN"`) {
		t.Errorf("the disk is full after %d emails: %d %s", accepted, status, answer)
	}
	free()
	postgres.Stop() // it may have given up, or not
	postgres.Start()
	eventually(t, func() error {
		if status, answer := s.call(http.MethodPost, "/v1/email/send", newBody("ultima@example.com", nil), nil); status != http.StatusAccepted {
			return fmt.Errorf("%d %s", status, answer)
		}
		return nil
	})
	var there int
	if err := s.db.SQL.QueryRowContext(t.Context(), "SELECT count(*) FROM email_outbox").Scan(&there); err != nil {
		t.Fatal(err)
	}
	// The interrupted one may have been committed: its response says so (ACCEPT_UNKNOWN).
	if there < accepted+1 || there > accepted+2 {
		t.Errorf("%d rows, want %d", there, accepted+1)
	}
	s.dispatcher, s.worker = startProgram(t, "dispatcher", s.env), startProgram(t, "worker", s.env)
	s.awaitAll(there, "SENT")
	s.sentOnce(there)
}

// The folder of uploaded files is full: a mailing is refused completely, single emails are not, and mailings work
// again when there is space.
func TestDiskFull_Storage(t *testing.T) {
	t.Parallel()
	disk := smallDisk(t, "8m")
	env := bulk(t, "amqp://gateway:gateway@127.0.0.1:1/") // the api never opens it
	folder := filepath.Join(disk, "mailings")
	env["STORAGE_URL"] = "file://" + folder
	s := &system{t: t, bin: binDir, db: storetest.New(t)}
	env["DATABASE_URL"], env["API_ADDR"] = s.db.URL, "127.0.0.1:0"
	env["CPF_CNPJ_KEYS"] = "test:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="
	s.api = startProgram(t, "api", env)
	s.key = s.newKey("Acme", "billing@acme.example")
	small := newSpreadsheet(t, 100)
	s.mail("primeira.csv", small, nil)

	free := fill(t, disk, 64<<10)
	var large strings.Builder
	large.WriteString("email;nome;cidade\n")
	for i := range 20_000 {
		fmt.Fprintf(&large, "pessoa%d@cliente.example;%x;Recife\n", i, i*7919)
	}
	blobs, rows := files(t, folder), rowsOfMailings(s)
	for _, file := range []string{large.String(), large.String()} {
		status, answer := s.upload("grande.csv", []byte(file), nil)
		if status != http.StatusServiceUnavailable || !strings.Contains(string(answer), `"STORAGE_UNAVAILABLE"`) {
			t.Errorf("%d %s", status, answer)
		}
	}
	if now := files(t, folder); now != blobs {
		t.Errorf("%d files, want %d: half a file stays", now, blobs)
	}
	if now := rowsOfMailings(s); now != rows {
		t.Errorf("%d rows, want %d", now, rows)
	}
	s.send("ana@example.com", nil)
	free()
	if status, answer := s.upload("grande.csv", []byte(large.String()), nil); status != http.StatusAccepted {
		t.Errorf("with room again: %d %s", status, answer)
	}
}

// asPostgres creates a folder that belongs to the account of Postgres.
func asPostgres(s *system, folder string) {
	s.t.Helper()
	s.db.Run(s.t, "COPY (SELECT WHERE false) TO PROGRAM 'mkdir -m 700 "+folder+"'")
}

// nothingHalfDone checks that there are n emails, each with all its rows.
func nothingHalfDone(s *system, want int) {
	s.t.Helper()
	var emails, keys, keyed int
	err := s.db.SQL.QueryRowContext(s.t.Context(), `SELECT (SELECT count(*) FROM email_outbox), (SELECT count(*) FROM idempotency_keys),
		(SELECT count(*) FROM idempotency_keys k JOIN email_outbox o ON o.id = k.outbox_id)`).Scan(&emails, &keys, &keyed)
	if err != nil || emails != want || keys != want-1 || keyed != keys {
		s.t.Errorf("%d emails, want %d; %d keys, %d of them with their email (%v)", emails, want, keys, keyed, err)
	}
}

func rowsOfMailings(s *system) (n int) {
	s.t.Helper()
	err := s.db.SQL.QueryRowContext(s.t.Context(), `SELECT (SELECT count(*) FROM mailings) + (SELECT count(*) FROM mailing_entries)
		+ (SELECT count(*) FROM mailing_rejects) + (SELECT count(*) FROM email_outbox WHERE target <> 'email:send')`).Scan(&n)
	if err != nil {
		s.t.Fatal(err)
	}
	return n
}

func files(t *testing.T, folder string) (n int) {
	t.Helper()
	err := filepath.WalkDir(folder, func(_ string, entry fs.DirEntry, err error) error {
		if err == nil && entry.Type().IsRegular() && entry.Name() != "installation" { // the marker
			n++
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}
