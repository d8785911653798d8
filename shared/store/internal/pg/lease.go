package pg

import "time"

// LeaseTime is the length of a lease, of an email or of a webhook endpoint.
const LeaseTime = time.Minute

// FarthestLeaseSQL is a time that no lease exceeds: twice LeaseTime, as now() of a concurrent transaction may be later.
// A lease that ends after it is of a server whose clock was ahead, before the clock was set back or a failover, and
// counts as over: otherwise it would hold its row until this server's clock reaches it. For the same reason, a
// heartbeat counts as old if it is as far ahead as it may be old.
const FarthestLeaseSQL = `now() + interval '2 minutes'`
