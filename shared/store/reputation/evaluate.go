package reputation

// Measure is how many emails were sent in a rule's window, and how many of them bounced or caused a
// complaint.
type Measure struct {
	Sent   int `json:"sent"`
	Events int `json:"events"`
}

// Rate returns the measured rate, rounded down.
func (m Measure) Rate() Rate {
	if m.Sent == 0 {
		return 0
	}
	return Rate(int64(m.Events) * int64(wholeRate) / int64(m.Sent))
}

// reaches reports whether the measured rate is at least the given one.
func (m Measure) reaches(r Rate) bool {
	return int64(m.Events)*int64(wholeRate) >= int64(r)*int64(m.Sent)
}

// Finding is a rule whose threshold is reached, as in the events of the company.
type Finding struct {
	Rule Rule `json:"rule"`
	Measure
	RatePercent      float64 `json:"ratePercent"`
	ThresholdPercent float64 `json:"thresholdPercent"`
}

// evaluation is the result of a check.
type evaluation struct {
	pause *Finding // the first rule that pauses
	warn  []Finding
	// near: a rule has enough events, and its rate may reach a threshold when more emails are sent or earlier ones
	// leave the window. The company is then checked again without new feedback.
	near bool
}

func evaluate(rules map[Rule]Thresholds, measured map[Rule]Measure) evaluation {
	var e evaluation
	for _, rule := range Rules() {
		t, m := rules[rule], measured[rule]
		found := Finding{Rule: rule, Measure: m, RatePercent: m.Rate().Percent()}
		switch {
		case m.Events < t.MinEvents:
			continue
		case !m.reaches(t.Warn), m.Sent < t.MinSent:
			e.near = true
			continue
		case m.reaches(t.Pause):
			found.ThresholdPercent = t.Pause.Percent()
			if e.pause == nil {
				e.pause = &found
			}
		default:
			e.near = true
			found.ThresholdPercent = t.Warn.Percent()
			e.warn = append(e.warn, found)
		}
	}
	return e
}
