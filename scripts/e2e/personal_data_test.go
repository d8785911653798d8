package e2e_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"email-gateway/shared/email"
	"email-gateway/shared/servertest"
	"email-gateway/shared/store/storetest"
	"email-gateway/shared/telemetry/telemetrytest"
)

// taxNumbers are a CPF, a CNPJ and an alphanumeric CNPJ, formatted and unformatted.
var taxNumbers = []string{"529.982.247-25", "52998224725", "11.222.333/0001-81", "11222333000181", "12.ABC.345/01DE-35", "12ABC34501DE35"}

// personalData is a system that received personal data through every route. All names contain "plantad", the tax
// numbers do not.
type personalData struct {
	*system
	collector *telemetrytest.Collector
	rabbitmq  *servertest.Server
	mailing   string
}

// With all logging and tracing enabled, personal data of every kind of request is searched for in all places where it
// must not appear.
func TestPersonalData(t *testing.T) {
	t.Parallel()
	p := &personalData{collector: telemetrytest.Start(t), rabbitmq: servertest.Start(t, "rabbitmq")}
	env := bulk(t, p.rabbitmq.URL)
	maps.Copy(env, map[string]string{
		"LOG_LEVEL": "debug", "OTEL_EXPORTER_OTLP_ENDPOINT": p.collector.URL, "OTEL_BSP_SCHEDULE_DELAY": "500", "EMAIL_BACKOFF": "24s", // such a retry waits in Redis

		"SES_CONFIGURATION_SET": "events", "SES_FEEDBACK_WINDOW": "5m", "RECIPIENTS_RETRY_TTL_MS": "500", "RECIPIENTS_BATCH_TIMEOUT_MS": "100",
	})
	p.system = startSystem(t, env)
	p.subscribeFeedback()
	p.submit()
	dashboard := p.dashboard() // before the waits of the retries end

	names := append(slices.Clone(taxNumbers), "plantad")
	for _, number := range taxNumbers {
		names = append(names, email.HashTaxID(number, nil)) // of the unformatted ones
	}
	for _, program := range []*program{p.api, p.dispatcher, p.worker} {
		p.mustNotContain("the log of "+program.name, program.logged(), names)
		_, metrics := fetch(t, program.metricsURL())
		p.mustNotContain("the metrics of "+program.name, metrics, names)
		if len(metrics) < 1000 {
			t.Errorf("no metrics of %s", program.name)
		}
	}
	if !strings.Contains(p.worker.logged(), "***@p***.example") {
		t.Error("the worker's log does not contain the masked addresses")
	}
	p.mustNotContain("the traces", p.collector.Text(), names)
	if len(p.collector.Text()) < 10_000 {
		t.Errorf("only %d bytes of traces", len(p.collector.Text()))
	}
	p.mustNotContain("the dashboard", dashboard, names)
	if !strings.Contains(dashboard, "***@p***.example") {
		t.Error("the dashboard does not contain the masked addresses")
	}
	stored := p.redisContents()
	p.mustNotContain("Redis", stored, taxNumbers) // tasks contain their recipients
	if !strings.Contains(stored, "@plantado.example") {
		t.Error("Redis contains none of the addresses: it was read too early or too late")
	}
	p.checkStoredElsewhere(names)
}

// submit sends personal data through every route and waits until everything has been tried.
func (p *personalData) submit() {
	t := p.t
	t.Helper()
	// Postgres quotes whole rows in errors.
	p.db.Run(p.t, `ALTER TABLE recipients ADD CONSTRAINT poison CHECK (nome <> 'Veneno Plantado')`)
	p.db.Run(p.t, `ALTER TABLE email_logs ADD CONSTRAINT poison CHECK (subject <> 'Veneno plantado')`)

	person := func(i int) func(map[string]any) {
		return func(b map[string]any) {
			b["subject"], b["html"], b["text"] = "Assunto plantado", "<p>corpo plantado</p>", "corpo plantado"
			b["cc"], b["replyTo"] = []string{"copia@plantado.example"}, "resposta@plantado.example"
			b["headers"], b["tags"] = map[string]string{"X-Cliente": "Rosa Plantada <rosa@plantado.example>"}, []string{"plantada"}
			b["recipient"] = map[string]any{"externalId": fmt.Sprint("plantada-", i), "cpfCnpj": taxNumbers[i%len(taxNumbers)], "nome": "Rosa Plantada", "razaoSocial": "Plantada Ltda", "email": b["to"]}
		}
	}
	var sent []string
	for i := range taxNumbers {
		sent = append(sent, p.send(fmt.Sprintf("rosa%d@plantado.example", i), person(i)))
	}
	p.send("veneno@plantado.example", func(b map[string]any) { person(0)(b); b["subject"] = "Veneno plantado" })
	var refused []string
	for i, fault := range []string{"identity-not-verified", "bad-request", "message-rejected"} {
		refused = append(refused, p.send("rosa+sim-"+fault+"@plantado.example", person(i)))
	}
	bounced := p.send("rosa+sim-bounce@plantado.example", person(0))
	p.submitInvalid()

	var recipients []map[string]any
	for i, number := range taxNumbers {
		recipients = append(recipients, map[string]any{"externalId": fmt.Sprint("plantada-r", i), "cpfCnpj": number, "nome": "Rosa Plantada", "email": fmt.Sprintf("r%d@plantado.example", i)})
	}
	recipients = append(recipients, map[string]any{"externalId": "plantada-x", "cpfCnpj": taxNumbers[0], "nome": "Veneno Plantado", "email": "veneno@plantado.example"})
	if status, answer := p.call(http.MethodPost, "/v1/recipients", map[string]any{"recipients": recipients}, nil); status != http.StatusAccepted {
		t.Fatalf("%d %s", status, answer)
	}
	if status, answer := p.call(http.MethodPost, "/v1/suppressions", map[string]any{"address": "nao@plantado.example", "note": "Rosa Plantada"}, nil); status >= 300 {
		t.Fatalf("%d %s", status, answer)
	}
	p.uploadSheet()

	for _, id := range sent {
		p.await(id, "SENT")
	}
	for _, id := range refused {
		p.await(id, "FAILED")
	}
	p.awaitMailing(p.mailing, "COMPLETED")
	eventually(t, func() error {
		dead := storetest.Ask[int](p.t, p.db, "SELECT count(*) FROM dead_letters WHERE target = 'recipients.upsert'")
		if dead != 1 || !strings.HasSuffix(strings.Join(p.email(bounced).timeline(), " "), "BOUNCED") || !strings.Contains(p.worker.logged(), "poison") {
			return fmt.Errorf("%d recipients are dead-lettered, the bounce is %v, and the worker logged:\n%s", dead, p.email(bounced).timeline(), p.worker.tail())
		}
		return nil
	})
	// These come last: they must still wait when Redis and the dashboard are read.
	var waiting []string
	for i, fault := range []string{"throttle-x1", "unavailable-json-x1", "throttling-exception-x1"} {
		waiting = append(waiting, p.send("rosa+sim-"+fault+"@plantado.example", person(i)))
	}
	for _, id := range waiting {
		p.await(id, "RETRY_SCHEDULED")
	}
}

// uploadSheet uploads rows of all kinds: valid ones, duplicates, and some that are invalid in the very field that
// must not be logged.
func (p *personalData) uploadSheet() {
	p.t.Helper()
	var sheet strings.Builder
	sheet.WriteString("Nome;E-mail;CPF;Cidade\n")
	for i, number := range taxNumbers {
		fmt.Fprintf(&sheet, "Rosa Plantada;m%d@plantado.example;%s;Plantadópolis\n", i, number)
	}
	sheet.WriteString("Rosa Plantada;M0@plantado.example;529.982.247-25;x\nRosa Plantada;m7@plantado.example;529.982.247-26;x\nRosa;rosa plantada @;52998224725;x\nRosa;52998224725;rosa@plantado.example;x\n\"Rosa;plantada@plantado.example\n")
	status, answer := p.upload("plantada.csv", []byte(sheet.String()), map[string]string{"html": "<p>Olá {{nome}} de {{cidade}}</p>", "subject": "Assunto plantado", "text": "corpo plantado"})
	var accepted struct{ MailingID string }
	if err := json.Unmarshal(answer, &accepted); err != nil || status != http.StatusAccepted {
		p.t.Fatalf("%d %s", status, answer)
	}
	p.mailing = accepted.MailingID
}

// submitInvalid sends requests that the api rejects and might quote.
func (p *personalData) submitInvalid() {
	p.t.Helper()
	for _, change := range []func(map[string]any){
		func(b map[string]any) {
			b["headers"] = map[string]any{"X-A": "rosa@plantado.example\r\nCPF: 529.982.247-25"}
		},
		func(b map[string]any) { b["tags"] = []string{strings.Repeat("plantada 529.982.247-25 ", 9)} },
		func(b map[string]any) { b["to"] = "52998224725 rosa@plantado.example" },
		func(b map[string]any) { b["52998224725-plantada"] = "rosa@plantado.example" },
		func(b map[string]any) {
			b["recipient"] = map[string]any{"cpfCnpj": "529.982.247-26", "email": "rosa@plantado.example"}
		},
		func(b map[string]any) { b["recipient"] = "rosa@plantado.example" },
		func(b map[string]any) { b["sendAt"] = "plantada 11.222.333/0001-81" },
	} {
		if status, answer := p.call(http.MethodPost, "/v1/email/send", newBody("rosa@plantado.example", change), nil); status < 400 || status >= 500 {
			p.t.Errorf("a wrong request: %d %s", status, answer)
		}
	}
	for _, path := range []string{
		"/v1/email/52998224725", "/v1/recipients/rosa@plantado.example", "/v1/emails?recipient=rosa@plantado.example&externalId=52998224725&cursor=plantada",
		"/v1/emails?tag=plantada&cpf=529.982.247-25", "/plantada/529.982.247-25", "/u/plantada-52998224725", "/v1/suppressions?address=rosa@plantado.example",
		"/mailings/plantada-52998224725", "/v1/dead-letters?recipient=rosa@plantado.example&mailingId=52998224725",
	} {
		p.call(http.MethodGet, path, nil, map[string]string{
			"User-Agent": "plantada 52998224725", "Referer": "https://x/?cpf=529.982.247-25&e=rosa@plantado.example", "Idempotency-Key": "plantada-52998224725",
			"traceparent": callersTrace, "tracestate": "plantada=52998224725", "baggage": "cpf=52998224725,e=rosa@plantado.example",
		})
	}
}

// mustNotContain fails the test for each word that text contains, ignoring case.
func (p *personalData) mustNotContain(where, text string, words []string) {
	p.t.Helper()
	lower := strings.ToLower(text)
	for _, word := range words {
		if i := strings.Index(lower, strings.ToLower(word)); i >= 0 {
			p.t.Errorf("%s contains %q: …%s…", where, word, lower[max(0, i-300):min(len(lower), i+150)])
		}
	}
}

// dashboard returns all responses of the dashboard: every list of every queue, and every task.
func (p *personalData) dashboard() string {
	p.t.Helper()
	var all strings.Builder
	get := func(path string) string {
		request, err := http.NewRequestWithContext(p.t.Context(), http.MethodGet, "http://"+p.worker.addr+"/monitoring"+path, nil)
		if err != nil {
			p.t.Fatal(err)
		}
		request.SetBasicAuth(p.env["MONITORING_USER"], p.env["MONITORING_PASSWORD"])
		response, err := httpClient.Do(request)
		if err != nil {
			p.t.Fatal(err)
		}
		defer func() { _ = response.Body.Close() }()
		var body strings.Builder
		if _, err := copyAll(&body, response.Body); err != nil {
			p.t.Fatal(err)
		}
		all.WriteString(body.String())
		return body.String()
	}
	for _, path := range []string{"/api/queues", "/api/servers", "/api/redis_info", "/api/schedulers", "/api/queue_stats"} {
		get(path)
	}
	tasks := 0
	for _, queue := range []string{"email:send:high", "email:send", "email:send:low"} {
		get("/api/queues/" + url.PathEscape(queue))
		for _, list := range []string{"pending", "active", "scheduled", "retry", "archived", "completed"} {
			var found struct{ Tasks []struct{ ID string } }
			if err := json.Unmarshal([]byte(get("/api/queues/"+url.PathEscape(queue)+"/"+list+"_tasks?size=100")), &found); err != nil {
				p.t.Errorf("%s of %s: %v", list, queue, err)
			}
			for _, task := range found.Tasks {
				tasks++
				get("/api/queues/" + url.PathEscape(queue) + "/tasks/" + task.ID)
			}
		}
	}
	if tasks < 6 {
		p.t.Errorf("the dashboard shows %d tasks, want three that wait and three that are archived", tasks)
	}
	return all.String()
}

// redisContents returns every key of Redis with its value.
func (p *personalData) redisContents() string {
	p.t.Helper()
	client, ctx := p.redisClient(), p.t.Context()
	var all strings.Builder
	keys := client.Scan(ctx, 0, "*", 100).Iterator()
	for keys.Next(ctx) {
		key := keys.Val()
		var value any
		var err error
		switch kind := client.Type(ctx, key).Val(); kind {
		case "string":
			value, err = client.Get(ctx, key).Result()
		case "hash":
			value, err = client.HGetAll(ctx, key).Result()
		case "list":
			value, err = client.LRange(ctx, key, 0, -1).Result()
		case "set":
			value, err = client.SMembers(ctx, key).Result()
		case "zset":
			value, err = client.ZRange(ctx, key, 0, -1).Result()
		case "none": // it was deleted meanwhile
		default:
			p.t.Errorf("%s is a %s, which this test cannot read", key, kind)
		}
		if err != nil && err != redis.Nil { //nolint:errorlint // go-redis returns it as it is
			p.t.Fatalf("%s: %v", key, err)
		}
		fmt.Fprintln(&all, key, value)
	}
	if err := keys.Err(); err != nil {
		p.t.Fatal(err)
	}
	return all.String()
}

// checkStoredElsewhere searches the files of RabbitMQ and the storage, which contain every message that ever waited,
// and every row of the database for numbers.
func (p *personalData) checkStoredElsewhere(names []string) {
	p.t.Helper()
	broker, err := filepath.EvalSymlinks(filepath.Join(p.rabbitmq.Dir, "rabbitmq"))
	if err != nil {
		p.t.Fatal(err)
	}
	if !bytes.Contains(p.onDisk("RabbitMQ", broker, names), []byte(p.mailing)) {
		p.t.Error("RabbitMQ's files do not contain the mailing's message: these are not its files")
	}
	if len(p.onDisk("the storage", strings.TrimPrefix(p.env["STORAGE_URL"], "file://"), names)) < 500 {
		p.t.Error("the storage does not contain the mailing's file")
	}
	var tables string
	err = p.db.SQL.QueryRowContext(p.t.Context(), `
SELECT string_agg(format('SELECT to_jsonb(t)::text FROM %I t', relname), ' UNION ALL ') FROM pg_class
WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p') AND NOT relispartition`).Scan(&tables)
	if err != nil {
		p.t.Fatal(err)
	}
	var rows string
	if err := p.db.SQL.QueryRowContext(p.t.Context(), "SELECT string_agg(row, E'\n') FROM ("+tables+") AS t (row)").Scan(&rows); err != nil {
		p.t.Fatal(err)
	}
	p.mustNotContain("the database", rows, taxNumbers)
	if !strings.Contains(rows, "rosa0@plantado.example") {
		p.t.Error("the database does not contain the addresses")
	}
}

// onDisk returns the content of all files below a folder.
func (p *personalData) onDisk(of, folder string, names []string) []byte {
	p.t.Helper()
	var all []byte
	err := filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return nil // deleted meanwhile, or a socket
		}
		content, err := os.ReadFile(path)
		if err == nil {
			p.mustNotContain(of+" in "+filepath.Base(path), string(content), names)
			all = append(all, content...)
		}
		return nil
	})
	if err != nil {
		p.t.Fatal(err)
	}
	return all
}
