package doctor

// devVariable is set in the file of variables that scripts/dev.sh writes: the directory of
// what it runs. Everything then runs on this machine, started by that script.
const devVariable = "DEV_DIR"

// devAdvice is the advice where scripts/dev.sh runs the system. Its programs and services are
// started and stopped by it alone, and have its settings; advice about accounts, TLS and roles
// is for production.
func (x *examination) devAdvice(check string, s Status, advice string) string {
	const again = "End ./scripts/dev.sh with Ctrl-C and start it again"
	log := x.value(devVariable) + "/log/"
	switch check {
	case "dispatcher", "worker", "api":
		if check == "api" && s == Warning {
			return advice // the other lines say what is missing
		}
		return again + "; " + log + check + ".log says why it ended."
	case "database", "redis", "rabbitmq", "storage":
		if s == Failure {
			return "./scripts/services.sh start starts what is not running; " + again + " if that does not help."
		}
	case "ses":
		return again + "; " + log + "ses-sim.log says why the simulator does not answer."
	case "migrations":
		return again + ": it migrates the database."
	case "settings":
		if s == Skipped {
			return "Nothing: ./scripts/dev.sh makes the settings of its programs."
		}
	case "gate":
		if s == Failure {
			return "Sending goes on by itself once the simulator takes an email again: reset its faults, see scripts/sessim/README.md."
		}
	}
	if s == Warning && (check == "database" || check == "roles" || check == "redis" || check == "domains" || check == "storage") {
		return "Nothing under ./scripts/dev.sh. In production: " + advice
	}
	return advice
}
