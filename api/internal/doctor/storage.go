package doctor

import "context"

// storage says who reaches the place of uploaded files: the dispatchers, by their own word,
// and this program, where somebody has said where it is.
func (x *examination) storage(ctx context.Context) {
	const (
		check  = "storage"
		theirs = "Is STORAGE_URL right where they run, and the same for api and dispatcher? Mailings wait meanwhile."
		ours   = "Is STORAGE_URL right, and do the credentials allow what .env.example names? Where the api has the same, no mailing is taken in meanwhile."
	)
	reach, miss, starting := heard(x.alive, func(p process) *saidOfPart { return p.Storage })
	by := names(reach)
	if x.Ping != nil {
		if err := x.Ping(ctx); err != nil {
			others := ""
			if by != "" {
				others = " It is reached by " + by + "."
			}
			if len(miss) > 0 {
				others += " It is not reached by " + names(miss) + " either."
			}
			x.add(check, Failure, ours, "It is not reached from here: %v.%s", err, others)
			return
		}
		if by != "" {
			by += " and "
		}
		by += "gatewayctl from here"
	}
	switch {
	case len(miss) > 0 && by == "":
		x.add(check, Failure, theirs, "It is not reached by %s.", names(miss))
	case len(miss) > 0:
		x.add(check, Warning, theirs, "It is reached by %s, and not by %s.", by, names(miss))
	case len(starting) > 0:
		x.add(check, Warning, lookAgain, "It was not reached yet when %s had just started.", names(starting))
	case by != "":
		x.add(check, OK, "", "It is reached by %s.", by)
	}
}
