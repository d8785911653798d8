package doctor

import "context"

// storage reports which processes reach the storage of files: the dispatchers and workers, as
// they report, and this program if STORAGE_URL is set.
func (x *examination) storage(ctx context.Context) {
	const (
		check  = "storage"
		theirs = "Check that STORAGE_URL is right for these processes, and the same for api, dispatcher and worker. Mailings and emails with attachments wait meanwhile."
		ours   = "Check STORAGE_URL, and that the credentials have the permissions listed in .env.example. If the api has the same problem, it accepts no mailing."
		apis   = "The api's log has the reason (\"dependency does not respond\"): check its STORAGE_URL, the permission to write, and the server's disk. Until then it accepts no file and no mailing."
	)
	reach, miss, starting := groupByReach(x.alive, func(p process) *componentStatus { return p.Storage })
	by := names(reach)
	if x.Ping != nil {
		if err := x.Ping(ctx); err != nil {
			others := ""
			if by != "" {
				others = " Reachable from " + by + "."
			}
			if len(miss) > 0 {
				others += " Not reachable from " + names(miss) + " either."
			}
			x.add(check, Failure, ours, "Not reachable from here: %v.%s", err, others)
			return
		}
		if by != "" {
			by += " and "
		}
		by += "gatewayctl"
	}
	switch {
	case len(miss) > 0 && by == "":
		x.add(check, Failure, theirs, "Not reachable from %s.", names(miss))
	case len(miss) > 0:
		x.add(check, Warning, theirs, "Reachable from %s, but not from %s.", by, names(miss))
	case len(starting) > 0:
		x.add(check, Warning, runAgain, "Not reached yet from %s, which started just now.", names(starting))
	case x.health.Storage.Status == "inaccessible":
		others := ""
		if by != "" {
			others = " Others can read it: " + by + "."
		}
		x.add(check, Failure, apis, "The api cannot store files.%s", others)
	case by != "":
		x.add(check, OK, "", "Reachable from %s.", by)
	}
}
