package environment

import (
	"errors"
	"syscall"
	"time"

	"email-gateway/scripts/bench/results"
	"email-gateway/scripts/local"
)

// Meter measures the CPU time of processes during a measurement.
type Meter struct {
	programs []*Program
	names    []string
	read     []func() (local.Usage, error)
	begun    []time.Duration
	Spent    []time.Duration // by each process, after Stop
	before   time.Time
	Length   time.Duration // of the measurement, after Stop
}

// NewMeter returns a meter for the programs and servers.
func NewMeter(programs []*Program, servers ...*local.Service) *Meter {
	m := &Meter{programs: programs}
	for _, p := range programs {
		m.Add(p.Kind, p.Usage)
	}
	for _, s := range servers {
		m.Add(s.Name, s.Usage)
	}
	return m
}

// Add adds a process, whose usage read returns.
func (m *Meter) Add(name string, read func() (local.Usage, error)) {
	m.names, m.read = append(m.names, name), append(m.read, read)
}

// Start begins the measurement. A nil Meter measures nothing.
func (m *Meter) Start() error {
	if m == nil {
		return nil
	}
	var err error
	if m.begun, err = m.times(); err != nil {
		return err
	}
	m.before = time.Now()
	return m.profile(beginProfile)
}

// Stop ends the measurement.
func (m *Meter) Stop() error {
	if m == nil {
		return nil
	}
	m.Length = time.Since(m.before)
	spent, err := m.times()
	if err := errors.Join(err, m.profile(endProfile)); err != nil {
		return err
	}
	for i := range spent {
		spent[i] -= m.begun[i]
	}
	m.Spent = spent
	return nil
}

func (m *Meter) profile(signal syscall.Signal) error {
	var errs []error
	for _, p := range m.programs {
		errs = append(errs, p.profile(signal))
	}
	return errors.Join(errs...)
}

func (m *Meter) times() ([]time.Duration, error) {
	times := make([]time.Duration, len(m.read))
	var errs []error
	for i, read := range m.read {
		usage, err := read()
		times[i] = usage.CPU
		errs = append(errs, err)
	}
	return times, errors.Join(errs...)
}

// Record adds a row for each process: its CPU time per piece of work, in µs.
func (m *Meter) Record(t *results.Table, prefix, piece string, pieces float64) {
	for i, spent := range m.Spent {
		t.Record(results.Quantity{Name: prefix + "cpu per " + piece + ", " + m.names[i], Unit: "µs"}, float64(spent.Microseconds())/pieces)
	}
}
