package environment_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"email-gateway/shared/environment"
)

type color string

func (c *color) UnmarshalText(text []byte) error {
	if string(text) != "blue" {
		return errors.New("must be blue")
	}
	*c = color(text)
	return nil
}

type settings struct {
	Database string        `env:"DATABASE_URL,required,notEmpty"`
	Workers  int           `env:"WORKERS" envDefault:"3"`
	Rate     float64       `env:"RATE" envDefault:"1.5"`
	Loud     bool          `env:"LOUD"`
	Poll     time.Duration `env:"POLL" envDefault:"1s"`
	Color    color         `env:"COLOR"`
}

func TestRead(t *testing.T) {
	t.Parallel()
	var s settings
	f := environment.Read([]string{"DATABASE_URL=postgres://db/x", "WORKERS=", "LOUD=true", "COLOR=blue"}, &s)
	want := settings{Database: "postgres://db/x", Workers: 3, Rate: 1.5, Loud: true, Poll: time.Second, Color: "blue"}
	if s != want || f.Err() != nil {
		t.Errorf("settings = %+v, %v; want %+v", s, f.Err(), want)
	}
}

func TestRead_AllErrors(t *testing.T) {
	t.Parallel()
	var s settings
	f := environment.Read([]string{"DATABASE_URL=", "WORKERS=many", "RATE=fast", "LOUD=very", "POLL=soon", "COLOR=red"}, &s)
	text := f.Err().Error()
	for _, want := range []string{
		"DATABASE_URL: must be set", `WORKERS: must be a whole number: "many"`, "RATE: must be a number", "LOUD: must be true or false",
		"POLL: must be a duration", "COLOR: must be blue",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing in\n%s", want, text)
		}
	}
}

func TestFaults(t *testing.T) {
	t.Parallel()
	var f environment.Faults
	f.URL("A_URL", "postgres://u:secret@db/x", "postgres")
	f.URL("B_URL", "mysql://u:secret@db/x", "postgres", "postgresql")
	f.URL("C_URL", "", "postgres")
	f.Address("D_ADDR", ":8080")
	f.Address("E_ADDR", "localhost")
	f.HTTPURL("F_URL", "https://ses.example")
	f.HTTPURL("G_URL", "ses.example")
	f.LogLevel("H_LEVEL", "loud")
	f.Must(true, "I", "must be")
	if len(f) != 4 {
		t.Errorf("%d faults, want those of B, E, G and H: %v", len(f), f.Err())
	}
	if strings.Contains(f.Err().Error(), "secret") {
		t.Errorf("the error contains the password: %v", f.Err())
	}
}
