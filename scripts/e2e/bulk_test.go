package e2e_test

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// An installation without RabbitMQ sends single emails, and says of everything else
// what is missing.
func TestBulk_Disabled(t *testing.T) {
	t.Parallel()
	s := startSystem(t, nil)
	status, answer := s.upload("clientes.csv", newSpreadsheet(t, 10).file, nil)
	if status != http.StatusServiceUnavailable || !strings.Contains(string(answer), "BULK_DISABLED") || !strings.Contains(string(answer), "RABBITMQ_URL") {
		t.Errorf("upload: %d %s", status, answer)
	}
	status, answer = s.call(http.MethodPost, "/v1/recipients", map[string]any{"email": "ana@cliente.example"}, nil)
	if status != http.StatusServiceUnavailable || !strings.Contains(string(answer), "BULK_DISABLED") {
		t.Errorf("recipients: %d %s", status, answer)
	}
	s.await(s.send("ana@cliente.example", nil), 20*time.Second, "SENT")
}

// The broker has what the README says: names, types, arguments.
func TestBulk_Topology(t *testing.T) {
	t.Parallel()
	rabbitmq := startService(t, "rabbitmq")
	s := startSystem(t, bulk(t, rabbitmq.url))
	sheet := newSpreadsheet(t, 100)
	s.awaitMailing(s.mail("clientes.csv", sheet, nil), time.Minute, "COMPLETED")
	text, err := os.ReadFile(filepath.Join(rootDir, "worker/README.md"))
	if err != nil {
		t.Fatal(err)
	}
	rows := regexp.MustCompile("(?m)^\\| `([a-z._0-9]+)` \\| (quorum|classic) \\| ([^|]*) \\| ([^|]*) \\|").FindAllStringSubmatch(string(text), -1)
	if len(rows) != 7 {
		t.Fatalf("the README's table has %d queues, want 7", len(rows))
	}
	eventually(t, 30*time.Second, func() error {
		there := rabbitmq.rabbitmqctl("list_queues", "name", "type", "arguments", "--formatter", "json")
		for _, row := range rows {
			if err := hasQueue(there, row[1], row[2], strings.Trim(row[3], "` "), strings.Trim(row[4], "` ")); err != nil {
				return err
			}
		}
		return nil
	})
}

// hasQueue looks for a queue with its type, TTL ("10 s", or "" for none) and dead letter
// exchange in what rabbitmqctl prints.
func hasQueue(list, name, kind, ttl, dlx string) error {
	for _, object := range regexp.MustCompile(`\{"arguments":.*?"type":"[a-z]+"\}`).FindAllString(list, -1) {
		if !strings.Contains(object, `"name":"`+name+`"`) {
			continue
		}
		wanted := []string{`"type":"` + kind + `"`}
		if ttl != "" {
			wanted = append(wanted, strings.TrimSuffix(ttl, " s")+"000")
		}
		if dlx != "" {
			wanted = append(wanted, dlx)
		}
		for _, part := range wanted {
			if !strings.Contains(object, part) {
				return fmt.Errorf("%s has no %s: %s", name, part, object)
			}
		}
		return nil
	}
	return fmt.Errorf("there is no queue %s: %s", name, list)
}

// A broker that takes nothing in (its memory alarm is on) delays mailings and nothing
// else, and no job is called published before it is.
func TestBulk_MemoryAlarm(t *testing.T) {
	t.Parallel()
	rabbitmq := startService(t, "rabbitmq")
	s := startSystem(t, bulk(t, rabbitmq.url))
	rabbitmq.rabbitmqctl("set_vm_memory_high_watermark", "absolute", "1")
	sheet := newSpreadsheet(t, 100)
	id := s.mail("clientes.csv", sheet, nil)
	for i := range 20 {
		begun := time.Now()
		s.await(s.send(fmt.Sprintf("cliente%d@example.com", i), nil), 10*time.Second, "SENT")
		if took := time.Since(begun); took > 5*time.Second {
			t.Errorf("an email took %s", took)
		}
	}
	eventually(t, 20*time.Second, func() error {
		if !strings.Contains(s.dispatcher.logged(), "dispatching interrupted") {
			return fmt.Errorf("the dispatcher does not tell of it")
		}
		return nil
	})
	var status string
	if err := s.db.SQL.QueryRowContext(t.Context(), "SELECT status FROM email_outbox WHERE target = 'mailing.process'").Scan(&status); err != nil || status != "PENDING" {
		t.Errorf("the job is %s, %v", status, err)
	}
	rabbitmq.rabbitmqctl("set_vm_memory_high_watermark", "0.6")
	s.awaitMailing(id, 2*time.Minute, "COMPLETED")
	s.sentOnce(20 + len(sheet.people))
}
