package asynqueue

// queueKeys are asynq's keys of a queue. They have one hash tag, so a cluster keeps them on one node.
type queueKeys struct {
	pending, active, lease, scheduled, retry, archived, completed string
	tasks                                                         string // prefix of the keys of the tasks' hashes
}

// keysOf returns the keys of the queue that Redis calls name.
func keysOf(name string) queueKeys {
	base := "asynq:{" + name + "}:"
	return queueKeys{
		pending: base + "pending", active: base + "active", lease: base + "lease", scheduled: base + "scheduled", retry: base + "retry",
		archived: base + "archived", completed: base + "completed", tasks: base + "t:",
	}
}

// task returns the key of a task's hash.
func (k queueKeys) task(id string) string { return k.tasks + id }

// ownKey returns a key of the gateway for a queue. It has the same hash tag as asynq's keys.
func ownKey(queue, what string) string { return "email-gateway:{" + queue + "}:" + what }
