package doctor

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"email-gateway/shared/store"
)

// saidByProcess is what a dispatcher or worker reports of the parts it talks to. A part
// that it does not talk to is nil.
type saidByProcess struct {
	Redis     *saidOfPart `json:"redis"`
	RabbitMQ  *saidOfPart `json:"rabbitmq"`
	Storage   *saidOfPart `json:"storage"`
	SES       *saidOfPart `json:"ses"`
	Consumers *int        `json:"consumers"` // of RabbitMQ's queues, taking messages
	Keeps     *redisKeeps `json:"redisKeeps"`
}

// redisKeeps is how Redis keeps what stands on its queues, as far as it tells.
type redisKeeps struct {
	Policy     string `json:"policy"`
	AppendOnly bool   `json:"appendOnly"`
}

type saidOfPart struct {
	Status string `json:"status"`
}

func (s *saidOfPart) reached() bool {
	return s != nil && slices.Contains([]string{"connected", "accessible", "ok"}, s.Status)
}

// process is one that reported lately.
type process struct {
	name string // dispatcher here-1
	// starting: its last report is from its first moments, before it had made its connections.
	starting bool
	saidByProcess
}

const (
	// firstMoments is how long a program may take to make its connections; it reports every 5 s.
	firstMoments = 3 * time.Second
	lookAgain    = "Look again in 10 seconds."
)

// processes looks at who is running, and at what they say of the parts.
func (x *examination) processes(ctx context.Context) {
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
		check: "redis", of: func(p process) *saidOfPart { return p.Redis },
		advice: "Is Redis running, and REDIS_URL right where they run? Emails wait in Postgres until it is back.",
	})
	x.redisKeeps(alive)
	x.rabbitMQ(alive)
	x.part(alive, part{
		check: "ses", of: func(p process) *saidOfPart { return p.SES },
		advice: "Is SES_ENDPOINT right, do the credentials allow ses:GetAccount, and is the network open? Emails wait meanwhile.",
	})
	x.alive = alive // storage asks them too
}

// service says who of a service is running, and returns them.
func (x *examination) service(name string, all []store.ProcessStatus) (alive []process) {
	var silent []string
	for _, s := range all {
		if s.Service != name {
			continue
		}
		if !s.Live() {
			silent = append(silent, fmt.Sprintf("%s for %s", s.Instance, s.Age.Round(time.Second)))
			continue
		}
		p := process{name: name + " " + s.Instance, starting: x.report.CheckedAt.Sub(s.StartedAt)-s.Age < firstMoments}
		if err := json.Unmarshal(s.Details, &p.saidByProcess); err != nil {
			x.add(name, Warning, "Is it of another release?", "What %s reports cannot be read: %v", s.Instance, err)
		}
		alive = append(alive, p)
	}
	switch {
	case len(alive) == 0 && len(silent) == 0:
		x.add(name, Failure, "Start one; nothing else is needed, what waits then goes on.", "No %s is running: none has reported within an hour.", name)
	case len(alive) == 0:
		x.add(name, Failure, "Start one, and look at the log of the last: nothing else is needed, what waits then goes on.",
			"No %s is running. Silent: %s.", name, strings.Join(silent, ", "))
	default:
		x.add(name, OK, "", "%d running: %s.", len(alive), names(alive))
	}
	if len(alive) > 0 && len(silent) > 0 {
		x.add(name, Warning, "If it was not stopped on purpose, look at its log: it did not shut down cleanly, or cannot reach Postgres.",
			"Silent: %s.", strings.Join(silent, ", "))
	}
	return alive
}

// part is something that processes talk to.
type part struct {
	check, advice string
	of            func(process) *saidOfPart
}

// heard is who reaches a part, and who does not; starting may not have tried yet. Who does
// not talk to it is in none of them.
func heard(alive []process, of func(process) *saidOfPart) (reach, miss, starting []process) {
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

// part says who reaches it and who does not, and whether anybody talks to it at all.
func (x *examination) part(alive []process, p part) (spoken bool) {
	reach, miss, starting := heard(alive, p.of)
	if len(starting) > 0 {
		x.add(p.check, Warning, lookAgain, "It was not reached yet when %s had just started.", names(starting))
	}
	switch {
	case len(reach) == 0 && len(miss) == 0:
		return len(starting) > 0
	case len(miss) == 0:
		x.add(p.check, OK, "", "It is reached by %s.", names(reach))
	case len(reach) == 0:
		x.add(p.check, Failure, p.advice, "It is not reached by %s.", names(miss))
	default:
		x.add(p.check, Warning, p.advice, "It is reached by %s, and not by %s.", names(reach), names(miss))
	}
	return true
}

// redisKeeps looks at the settings of Redis that decide whether it forgets. All dispatchers
// talk to the same one.
func (x *examination) redisKeeps(alive []process) {
	const check, late = "redis", " Emails that it forgets are put back from Postgres, but late."
	i := slices.IndexFunc(alive, func(p process) bool { return p.Keeps != nil })
	if i < 0 {
		return
	}
	keeps := alive[i].Keeps
	if keeps.Policy != "" && keeps.Policy != "noeviction" {
		x.add(check, Warning, "Set maxmemory-policy to noeviction."+late, "It may throw tasks away when its memory is full: its maxmemory-policy is %s.", keeps.Policy)
	}
	if !keeps.AppendOnly {
		x.add(check, Warning, "Set appendonly to yes, unless a replica takes over."+late, "It forgets its queues when it restarts: appendonly is off.")
	}
}

func (x *examination) rabbitMQ(alive []process) {
	const check = "rabbitmq"
	if !x.part(alive, part{
		check: check, of: func(p process) *saidOfPart { return p.RabbitMQ },
		advice: "Is RabbitMQ running, and RABBITMQ_URL right where they run? Mailings and recipients wait; single emails do not need it.",
	}) {
		if x.bulk {
			x.add(check, Failure, "Set RABBITMQ_URL for dispatcher and worker too, and restart them.",
				"The api has a RABBITMQ_URL, and neither dispatcher nor worker has: mailings are taken in that nobody sends.")
			return
		}
		x.add(check, OK, "", "There is none: mailings and recipients are off, single emails are not.")
		return
	}
	x.bulk = true
	consumers, told, starting := 0, false, false
	for _, p := range alive {
		if p.Consumers != nil {
			consumers, told, starting = consumers+*p.Consumers, true, starting || p.starting
		}
	}
	switch {
	case !slices.ContainsFunc(alive, func(p process) bool { return p.RabbitMQ.reached() }): // which has been told
	case told && consumers == 0 && starting:
		x.add(check, Warning, lookAgain, "Nobody took messages from its queues yet when the worker had just started.")
	case told && consumers == 0:
		x.add(check, Failure, "Is a worker running that has RABBITMQ_URL? Its log tells why it does not take messages.", "Nobody takes messages from its queues.")
	}
}

func names(some []process) string {
	all := make([]string, len(some))
	for i, p := range some {
		all[i] = p.name
	}
	return strings.Join(all, ", ")
}
