package doctor

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	processstore "email-gateway/shared/store/process"
)

// processDetails is the status that a dispatcher or worker reports of its components. A
// component that it does not use is nil.
type processDetails struct {
	Redis       *componentStatus `json:"redis"`
	RabbitMQ    *componentStatus `json:"rabbitmq"`
	Storage     *componentStatus `json:"storage"`
	SES         *componentStatus `json:"ses"`
	SESEvents   *componentStatus `json:"sesEvents"`
	SESAccess   *sesAccess       `json:"sesAccess"`        // nil for a worker of an earlier release
	KeyIDs      *[]string        `json:"keyIds"`           // of CPF_CNPJ_KEYS; nil for dispatchers, and for a worker of an earlier release
	Links       *workerLinks     `json:"unsubscribeLinks"` // nil for dispatchers, and for a worker of an earlier release
	Consumers   *int             `json:"consumers"`        // consumers of RabbitMQ queues
	Durability  *redisDurability `json:"redisKeeps"`
	Connections int              `json:"connections"` // to Postgres, at most
	// LeastConnections is how many it needs of Postgres at least; 0 for a process of an earlier release.
	LeastConnections int `json:"leastConnections"`
	// SyncCommit is synchronous_commit of its connections.
	SyncCommit string `json:"synchronousCommit"`
}

// redisDurability holds Redis's version, eviction and persistence settings, as far as they are readable.
type redisDurability struct {
	Version    string `json:"version"`
	Policy     string `json:"policy"`
	AppendOnly bool   `json:"appendOnly"`
}

type componentStatus struct {
	Status string `json:"status"`
}

func (s *componentStatus) reached() bool {
	return s != nil && slices.Contains([]string{"connected", "accessible", "ok"}, s.Status)
}

// process is a live process.
type process struct {
	name string // dispatcher here-1
	// starting: its last report dates from before it had made its connections.
	starting bool
	processDetails
}

const (
	// startupTime is how long a program may take to connect; it reports every 5 s.
	startupTime = 3 * time.Second
	runAgain    = "Run doctor again in 10 seconds."
)

// processes reports which processes run and the components that they reach.
func (x *examination) processes(ctx context.Context) {
	if x.server.ReadOnly && !x.server.Standby { // a standby has the reports of the primary
		for _, part := range []string{"dispatcher", "worker", "redis", "rabbitmq", "ses"} {
			x.add(part, Skipped, "", "Unknown: the database accepts no writes, so no process can report.")
		}
		return
	}
	all, err := x.Store.ProcessStatuses(ctx)
	if x.couldNot("dispatcher", err) {
		return
	}
	var alive []process
	for _, service := range []string{"dispatcher", "worker"} {
		alive = append(alive, x.service(service, all)...)
	}
	if len(alive) == 0 {
		for _, part := range []string{"redis", "rabbitmq", "ses"} {
			x.add(part, Skipped, "", "Unknown: no dispatcher or worker is running.")
		}
		return
	}
	x.part(alive, part{
		check: "redis", of: func(p process) *componentStatus { return p.Redis },
		advice: "Check that Redis is running and that REDIS_URL is right for these processes. Emails wait in Postgres until it is back.",
	})
	x.processCommits(alive)
	x.connections(alive)
	x.redisDurability(alive)
	x.rabbitMQ(alive)
	x.part(alive, part{
		check: "ses", of: func(p process) *componentStatus { return p.SES },
		advice: "Check SES_ENDPOINT, the network, and that the credentials allow ses:GetAccount and ses:SendEmail. A worker that cannot send although others can reports this too, and logs the code. Emails wait meanwhile.",
	})
	x.sesAccess(alive)
	x.keys(ctx, alive)
	x.unsubscribeLinks(alive)
	x.part(alive, part{
		check: "sesEvents", of: func(p process) *componentStatus { return p.SESEvents },
		advice: "Check SES_EVENTS_QUEUE, the network, and that the credentials allow sqs:ReceiveMessage and sqs:DeleteMessage, and kms:Decrypt if a customer-managed key encrypts the queue. Events wait in the queue.",
	})
	x.alive = alive // also used by storage
}

// service reports which processes of a service run, and returns them.
func (x *examination) service(name string, all []processstore.Status) (alive []process) {
	var silent []string
	for _, s := range all {
		if s.Service != name {
			continue
		}
		if !s.Live() {
			silent = append(silent, fmt.Sprintf("%s for %s", s.Instance, s.Age.Round(time.Second)))
			continue
		}
		p := process{name: name + " " + s.Instance, starting: x.report.CheckedAt.Sub(s.StartedAt)-s.Age < startupTime}
		if err := json.Unmarshal(s.Details, &p.processDetails); err != nil {
			x.add(name, Warning, "Check whether it runs another release.", "The status reported by %s cannot be read: %v", s.Instance, err)
		}
		alive = append(alive, p)
	}
	switch {
	case len(alive) == 0 && len(silent) == 0:
		x.add(name, Failure, "Start one; waiting emails are then processed.", "No %s is running: none has sent a heartbeat within the last hour.", name)
	case len(alive) == 0:
		x.add(name, Failure, "Start one, and see the log of the last one; waiting emails are then processed.",
			"No %s is running. Without heartbeat: %s.", name, strings.Join(silent, ", "))
	default:
		x.add(name, OK, "", "%d running: %s.", len(alive), names(alive))
	}
	if len(alive) > 0 && len(silent) > 0 {
		x.add(name, Warning, "If it was not stopped on purpose, see its log: it did not shut down cleanly or cannot reach Postgres.",
			"Without heartbeat: %s.", strings.Join(silent, ", "))
	}
	return alive
}

// part is a component that processes connect to.
type part struct {
	check, advice string
	of            func(process) *componentStatus
}

// groupByReach groups the processes by whether they reach a component; starting ones may not have
// connected yet. Processes that do not use it are in no group.
func groupByReach(alive []process, of func(process) *componentStatus) (reach, miss, starting []process) {
	for _, one := range alive {
		switch said := of(one); {
		case said == nil:
		case said.reached():
			reach = append(reach, one)
		case one.starting:
			starting = append(starting, one)
		default:
			miss = append(miss, one)
		}
	}
	return reach, miss, starting
}

// part reports which processes reach a component, and whether any process uses it.
func (x *examination) part(alive []process, p part) (spoken bool) {
	reach, miss, starting := groupByReach(alive, p.of)
	if len(starting) > 0 {
		x.add(p.check, Warning, runAgain, "Not reached yet from %s, which started just now.", names(starting))
	}
	switch {
	case len(reach) == 0 && len(miss) == 0:
		return len(starting) > 0
	case len(miss) == 0:
		x.add(p.check, OK, "", "Reachable from %s.", names(reach))
	case len(reach) == 0:
		x.add(p.check, Failure, p.advice, "Not reachable from %s.", names(miss))
	default:
		x.add(p.check, Warning, p.advice, "Reachable from %s, but not from %s.", names(reach), names(miss))
	}
	return true
}

// redisDurability checks the version of Redis and the settings that decide whether it loses tasks. All
// dispatchers use the same Redis.
func (x *examination) redisDurability(alive []process) {
	const check, late = "redis", " Lost tasks are restored from Postgres, but late."
	i := slices.IndexFunc(alive, func(p process) bool { return p.Durability != nil })
	if i < 0 {
		return
	}
	durability := alive[i].Durability
	var major, minor int
	// Workers use GETDEL, which 6.2 has introduced.
	if n, _ := fmt.Sscanf(durability.Version, "%d.%d", &major, &minor); n == 2 && (major < 6 || major == 6 && minor < 2) {
		x.add(check, Failure, "Upgrade it to 6.2 or newer.", "Redis %s is too old.", durability.Version)
	}
	if durability.Policy != "" && durability.Policy != "noeviction" {
		x.add(check, Warning, "Set maxmemory-policy to noeviction."+late, "Redis may evict tasks when its memory is full: maxmemory-policy is %s.", durability.Policy)
	}
	if !durability.AppendOnly {
		x.add(check, Warning, "Set appendonly to yes, unless a replica takes over."+late, "Redis loses its queues when it restarts: appendonly is off.")
	}
}

func (x *examination) rabbitMQ(alive []process) {
	const check = "rabbitmq"
	if !x.part(alive, part{
		check: check, of: func(p process) *componentStatus { return p.RabbitMQ },
		advice: "Check that RabbitMQ is running and that RABBITMQ_URL is right for these processes. Mailings and recipients wait; single emails do not need it. A worker that logs \"cannot republish tasks\" reaches it, but one of its queues accepts no tasks: see DependencyDown in OPERATIONS.md.",
	}) {
		if x.bulk {
			x.add(check, Failure, "Set RABBITMQ_URL for dispatcher and worker too, and restart them.",
				"RABBITMQ_URL is set for the api, but neither for dispatcher nor worker: mailings are not sent.")
			return
		}
		x.add(check, OK, "", "Not used: mailings and recipients are disabled, single emails are enabled.")
		return
	}
	x.bulk = true
	if unused := withoutRabbitMQ(alive); len(unused) > 0 {
		x.add(check, Failure, "Set RABBITMQ_URL for these programs too, and restart them.", "RABBITMQ_URL is set, but for no %s: mailings are not sent.", strings.Join(unused, " and no "))
		return
	}
	consumers, reported, starting := 0, false, false
	for _, p := range alive {
		if p.Consumers != nil {
			consumers, reported, starting = consumers+*p.Consumers, true, starting || p.starting
		}
	}
	switch {
	case !slices.ContainsFunc(alive, func(p process) bool { return p.RabbitMQ.reached() }): // reported by part
	case reported && consumers == 0 && starting:
		x.add(check, Warning, runAgain, "No worker consumes its queues yet: the worker has just started.")
	case reported && consumers == 0:
		x.add(check, Failure, "Check that a worker with RABBITMQ_URL is running; its log says why it does not consume.", "No worker consumes its queues.")
	}
}

// withoutRabbitMQ returns the running services that have no process with RABBITMQ_URL.
func withoutRabbitMQ(alive []process) (unused []string) {
	for _, service := range []string{"dispatcher", "worker"} {
		runs, uses := false, false
		for _, p := range alive {
			if strings.HasPrefix(p.name, service+" ") {
				runs, uses = true, uses || p.RabbitMQ != nil
			}
		}
		if runs && !uses {
			unused = append(unused, service)
		}
	}
	return unused
}

func names(some []process) string {
	all := make([]string, len(some))
	for i, p := range some {
		all[i] = p.name
	}
	return strings.Join(all, ", ")
}
