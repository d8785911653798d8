package store

import "email-gateway/shared/store/process"

// ProcessStatus is the last status report of a dispatcher or worker, with its dependencies.
type ProcessStatus = process.Status

// StatusLife is how long after its last report a process counts as running.
const StatusLife = process.Life

type processes = process.Store
