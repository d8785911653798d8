package doctor

// devVariable is set by scripts/dev.sh: the directory of the local system that it runs.
const devVariable = "DEV_DIR"

// devAdvice replaces advice if scripts/dev.sh runs the system: only that script starts and
// stops the programs and services and holds their settings. Advice about accounts, TLS and
// roles applies to production only.
func (x *examination) devAdvice(check string, s Status, advice string) string {
	const again = "Stop ./scripts/dev.sh with Ctrl-C and start it again"
	log := x.value(devVariable) + "/log/"
	switch check {
	case "dispatcher", "worker", "api":
		if check == "api" && s == Warning {
			return advice // the other findings say what is missing
		}
		return again + "; " + log + check + ".log says why it stopped."
	case "database", "redis", "rabbitmq", "storage":
		if s == Failure {
			return "Run ./scripts/services.sh start; " + again + " if that does not help."
		}
	case "ses":
		return again + "; " + log + "ses-sim.log shows why the simulator does not answer."
	case "migrations":
		return again + ": it migrates the database."
	case "settings":
		if s == Skipped {
			return "No action needed: ./scripts/dev.sh generates the settings of its programs."
		}
	case "breaker":
		if s == Failure {
			return "Sending resumes once the simulator accepts an email: reset its faults, see scripts/sessim/README.md."
		}
	}
	if s == Warning && (check == "database" || check == "roles" || check == "redis" || check == "domains" || check == "storage") {
		return "No action needed with ./scripts/dev.sh. In production: " + advice
	}
	return advice
}
