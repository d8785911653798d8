package e2e_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"email-gateway/shared/servertest"
)

// Without RabbitMQ the gateway sends single emails, and bulk requests are answered with what is missing.
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
	s.await(s.send("ana@cliente.example", nil), "SENT")
}

// The queues of a new broker are those of the README. When it accepts no messages (its memory alarm is on), only mailings
// wait, and no job is marked PUBLISHED before it is confirmed.
func TestBulk_TopologyAndMemoryAlarm(t *testing.T) {
	t.Parallel()
	rabbitmq := servertest.Start(t, "rabbitmq")
	s := startSystem(t, bulk(t, rabbitmq.URL))
	before := newSpreadsheet(t, 100)
	s.awaitMailing(s.mail("antes.csv", before, nil), "COMPLETED")
	checkTopology(t, rabbitmq)

	rabbitmq.RabbitMQCtl("set_vm_memory_high_watermark", "absolute", "1")
	sheet := newSpreadsheet(t, 100)
	id := s.mail("clientes.csv", sheet, nil)
	s.sendTen()
	s.awaitAll(len(before.people)+10, "SENT")
	eventually(t, func() error {
		if !strings.Contains(s.dispatcher.logged(), "dispatching interrupted") {
			return fmt.Errorf("the dispatcher does not log it")
		}
		return nil
	})
	var status string
	if err := s.db.SQL.QueryRowContext(t.Context(), "SELECT status FROM email_outbox WHERE target = 'mailing.process' AND payload ->> 'mailingId' = $1", id).Scan(&status); err != nil || status != "PENDING" {
		t.Errorf("the job is %s, %v", status, err)
	}
	rabbitmq.RabbitMQCtl("set_vm_memory_high_watermark", "0.6")
	s.awaitMailing(id, "COMPLETED")
	s.sentOnce(10 + len(before.people) + len(sheet.people))
}

// checkTopology compares the names, types and arguments of the broker's queues with those of the README.
func checkTopology(t *testing.T, rabbitmq *servertest.Server) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(rootDir, "worker/README.md"))
	if err != nil {
		t.Fatal(err)
	}
	rows := regexp.MustCompile("(?m)^\\| `([a-z._0-9]+)` \\| (quorum|classic) \\|([^|]*)\\|([^|]*)\\|").FindAllStringSubmatch(string(text), -1)
	if len(rows) != 7 {
		t.Fatalf("the README's table has %d queues, want 7", len(rows))
	}
	there := listQueues(t, rabbitmq)
	for _, row := range rows {
		name, ttl, deadLetters := row[1], strings.TrimSpace(row[3]), strings.Trim(row[4], "` ")
		is, known := there[name]
		wait := ""
		if ms, set := is.arguments["x-message-ttl"].(float64); set {
			wait = (time.Duration(ms) * time.Millisecond).String()
		}
		to := is.arguments["x-dead-letter-exchange"]
		if to == "" { // the broker's own exchange: straight to the queue
			to = is.arguments["x-dead-letter-routing-key"]
		}
		if !known || is.kind != row[2] || wait != strings.ReplaceAll(ttl, " ", "") || deadLetters != "" && to != deadLetters {
			t.Errorf("%s is %+v; the README says %v", name, is, row[2:])
		}
	}
	if len(there) != len(rows) {
		t.Errorf("the broker has %d queues, the README %d", len(there), len(rows))
	}
}

// brokerQueue is a queue as rabbitmqctl prints it.
type brokerQueue struct {
	kind      string
	arguments map[string]any
}

func listQueues(t *testing.T, rabbitmq *servertest.Server) map[string]brokerQueue {
	t.Helper()
	var list []struct {
		Name, Type string
		Arguments  [][3]any // name, AMQP type, value
	}
	if err := json.Unmarshal([]byte(rabbitmq.RabbitMQCtl("list_queues", "name", "type", "arguments", "--formatter", "json")), &list); err != nil {
		t.Fatal(err)
	}
	queues := make(map[string]brokerQueue, len(list))
	for _, q := range list {
		arguments := make(map[string]any, len(q.Arguments))
		for _, a := range q.Arguments {
			name, _ := a[0].(string)
			arguments[name] = a[2]
		}
		queues[q.Name] = brokerQueue{q.Type, arguments}
	}
	return queues
}
