package bench

import (
	"errors"
	"syscall"
	"time"

	"email-gateway/scripts/local"
)

// meter measures the CPU time of processes during a measurement.
type meter struct {
	programs []*Program
	names    []string
	read     []func() (Usage, error)
	begun    []time.Duration
	Spent    []time.Duration // by each process, after stop
	before   time.Time
	Length   time.Duration
}

// newMeter returns a meter for the programs and servers.
func newMeter(r *Environment, programs []*Program, servers ...*local.Service) *meter {
	m := &meter{programs: programs}
	for _, p := range programs {
		m.names, m.read = append(m.names, p.Kind), append(m.read, p.Usage)
	}
	for _, s := range servers {
		m.names, m.read = append(m.names, s.Name), append(m.read, func() (Usage, error) { return r.ServerUsage(s) })
	}
	return m
}

func (m *meter) start() error {
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

func (m *meter) stop() error {
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

func (m *meter) profile(signal syscall.Signal) error {
	var errs []error
	for _, p := range m.programs {
		errs = append(errs, p.profile(signal))
	}
	return errors.Join(errs...)
}

func (m *meter) times() ([]time.Duration, error) {
	times := make([]time.Duration, len(m.read))
	var errs []error
	for i, read := range m.read {
		usage, err := read()
		times[i] = usage.CPU
		errs = append(errs, err)
	}
	return times, errors.Join(errs...)
}

// record adds a row for each process: its CPU time per piece of work, in µs.
func (m *meter) record(t *Table, prefix, piece string, pieces float64) {
	for i, spent := range m.Spent {
		t.Record(Quantity{Name: prefix + "cpu per " + piece + ", " + m.names[i], Unit: "µs"}, float64(spent.Microseconds())/pieces)
	}
}
