package store

import "email-gateway/shared/store/process"

// ProcessStatus is the last status report of a dispatcher or worker, with its dependencies.
type ProcessStatus = process.Status

type processes = process.Store
