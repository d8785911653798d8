package cluster

import (
	"fmt"

	"email-gateway/scripts/local"
)

// roles lists the programs and their dependencies. The load generator also reaches each api through
// a link.
var roles = []struct {
	kind         string
	count        int
	dependencies []string
}{
	{kind: "api", count: 2, dependencies: []string{Postgres, S3}},
	{kind: "dispatcher", count: 2, dependencies: []string{Postgres, Redis, RabbitMQ, S3}},
	{kind: "worker", count: 2, dependencies: []string{Postgres, Redis, RabbitMQ, S3, SES}},
}

// The dependencies of programs; API is the dependency of the load generator.
const (
	Postgres = local.Postgres
	Redis    = local.Redis
	RabbitMQ = local.RabbitMQ
	S3       = local.S3
	SES      = "ses"
	API      = "api"
)

// ServiceNames lists the services.
func ServiceNames() []string { return []string{Postgres, Redis, RabbitMQ, S3} }

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

// variables are the settings with the address of each dependency.
var variables = map[string]string{
	Postgres: "DATABASE_URL", Redis: "REDIS_URL", RabbitMQ: "RABBITMQ_URL", S3: "STORAGE_URL", SES: "SES_ENDPOINT",
}
