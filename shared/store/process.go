package store

import "email-gateway/shared/store/process"

// ProcessStatus is what one dispatcher or worker last said about itself and the
// parts it talks to.
type ProcessStatus = process.Status

// StatusLife is how long a process's word about itself counts.
const StatusLife = process.Life

type processes = process.Store
