package stage

import (
	"fmt"

	"email-gateway/scripts/local"
)

// roles says which programs there are and what each of them talks to. The load is a
// dependant too: it reaches each api over a link.
var roles = []struct {
	kind         string
	count        int
	dependencies []string
}{
	{kind: "api", count: 2, dependencies: []string{Postgres}},
	{kind: "dispatcher", count: 2, dependencies: []string{Postgres, Redis, RabbitMQ}},
	{kind: "worker", count: 2, dependencies: []string{Postgres, Redis, RabbitMQ, SES}},
}

// What programs depend on; API is what the load depends on.
const (
	Postgres = local.Postgres
	Redis    = local.Redis
	RabbitMQ = local.RabbitMQ
	SES      = "ses"
	API      = "api"
)

// ProgramNames lists the programs: api-1, api-2, dispatcher-1 …; kind "" means all.
func ProgramNames(kind string) []string {
	var names []string
	for _, role := range roles {
		for n := range role.count {
			if kind == "" || kind == role.kind {
				names = append(names, fmt.Sprintf("%s-%d", role.kind, n+1))
			}
		}
	}
	return names
}

// LinkNames lists the links to the dependency: worker-1:redis, worker-2:redis …
func LinkNames(dependency string) []string {
	var names []string
	for _, role := range roles {
		for _, d := range role.dependencies {
			for n := range role.count {
				if d == dependency {
					names = append(names, fmt.Sprintf("%s-%d:%s", role.kind, n+1, d))
				}
			}
		}
		if role.kind == dependency {
			for n := range role.count {
				names = append(names, fmt.Sprintf("load:%s-%d", role.kind, n+1))
			}
		}
	}
	return names
}

// variables are how the programs are told where each dependency is.
var variables = map[string]string{
	Postgres: "DATABASE_URL", Redis: "REDIS_URL", RabbitMQ: "RABBITMQ_URL", SES: "SES_ENDPOINT",
}
