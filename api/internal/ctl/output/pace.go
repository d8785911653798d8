package output

import "time"

// Pace estimates the current rate.
type Pace struct {
	at        time.Time
	done      int64
	PerSecond float64
}

// Add records what is done by now. The rate is a moving average over about five seconds, so
// that it shows a pause but not a single delay.
func (p *Pace) Add(now time.Time, done int64) {
	if p.at.IsZero() {
		p.at, p.done = now, done
		return
	}
	passed := now.Sub(p.at).Seconds()
	if passed < 0.5 {
		return
	}
	latest := float64(done-p.done) / passed
	weight := min(passed/5, 1)
	if p.PerSecond == 0 {
		weight = 1
	}
	p.PerSecond += (latest - p.PerSecond) * weight
	p.at, p.done = now, done
}

// Left estimates the remaining time; 0 = unknown.
func (p *Pace) Left(done, total int64) time.Duration {
	if p.PerSecond <= 0 || total <= done {
		return 0
	}
	return time.Duration(float64(total-done) / p.PerSecond * float64(time.Second))
}
