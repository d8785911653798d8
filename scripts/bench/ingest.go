package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"email-gateway/scripts/bench/environment"
	"email-gateway/scripts/bench/load"
	"email-gateway/scripts/bench/results"
)

func ingest() Section {
	return Section{Name: "ingest", What: "a CSV of 1 M rows over HTTP, compared with psql's \\copy of the same rows", Run: runIngest}
}

// ingesting holds a CSV and the two ways to import it into mailing_entries.
type ingesting struct {
	environment     *environment.Environment
	table           *results.Table
	rows            int
	sheet           string              // the CSV
	ready           string              // the rows of mailing_entries, as \copy reads them
	ours            *environment.System // imports the CSV
	referenceSystem *environment.System // imports the rows
	api             *environment.Program
}

func runIngest(ctx context.Context, r *environment.Environment, t *results.Table) (err error) {
	in := &ingesting{
		environment: r, table: t, rows: environment.Scale(r, 1_000_000, 20_000),
		sheet: filepath.Join(r.Dir(), "sheet.csv"), ready: filepath.Join(r.Dir(), "entries.copy"),
	}
	defer func() { err = errors.Join(err, in.close(context.WithoutCancel(ctx))) }()
	if err := load.WriteSheet(in.sheet, in.rows); err != nil {
		return err
	}
	if in.ours, err = r.NewSystem(ctx, nil); err != nil {
		return err
	}
	if in.referenceSystem, err = r.NewSystem(ctx, nil); err != nil {
		return err
	}
	if in.api, err = in.ours.Start(ctx, "api", nil); err != nil {
		return err
	}
	return t.Compare(ctx,
		results.Subject{Name: fmt.Sprintf("CSV of %d rows", in.rows), Unit: "rows/s", Measure: in.subject},
		results.Reference{Name: "psql \\copy of the same rows", Budget: 0.8, Moonshot: 1.2, Measure: in.reference},
	)
}

// subject measures the rate from the first byte of the upload to the response, which follows the
// commit.
func (in *ingesting) subject(ctx context.Context) (float64, error) {
	if err := in.empty(ctx, in.ours); err != nil {
		return 0, err
	}
	m := environment.NewMeter([]*environment.Program{in.api}, in.environment.Postgres)
	if err := m.Start(); err != nil {
		return 0, err
	}
	if err := in.upload(ctx); err != nil {
		return 0, err
	}
	if err := m.Stop(); err != nil {
		return 0, err
	}
	m.Record(in.table, "", "row", float64(in.rows))
	usage, err := in.api.Usage()
	if err != nil {
		return 0, err
	}
	in.table.Record(results.Quantity{Name: "most memory, api", Unit: "MB"}, float64(usage.Peak)/1e6)
	if err := in.dump(ctx); err != nil {
		return 0, err
	}
	return float64(in.rows) / m.Length.Seconds(), nil
}

// dump writes the reference's input from the rows of the first upload.
func (in *ingesting) dump(ctx context.Context) error {
	if _, err := os.Stat(in.ready); err == nil {
		return nil
	}
	_, err := environment.PostgresRun(ctx, "psql", "-X", "-q", "-v", "ON_ERROR_STOP=1", "-d", in.ours.DatabaseURL, "-c", `\copy mailing_entries TO '`+in.ready+`'`)
	return err
}

func (in *ingesting) reference(ctx context.Context) (float64, error) {
	if err := in.empty(ctx, in.referenceSystem); err != nil {
		return 0, err
	}
	start := time.Now()
	if _, err := environment.PostgresRun(ctx, "psql", "-X", "-q", "-v", "ON_ERROR_STOP=1", "-d", in.referenceSystem.DatabaseURL,
		"-c", `\copy mailing_entries FROM '`+in.ready+`'`); err != nil {
		return 0, err
	}
	length := time.Since(start)
	n, err := in.referenceSystem.Count(ctx, "SELECT count(*) FROM mailing_entries")
	if err == nil && n != int64(in.rows) {
		err = fmt.Errorf("psql read %d rows of %d", n, in.rows)
	}
	return float64(in.rows) / length.Seconds(), err
}

// empty removes the rows of earlier measurements.
func (in *ingesting) empty(ctx context.Context, s *environment.System) error {
	if _, err := s.Database.ExecContext(ctx, "TRUNCATE mailings, mailing_entries, mailing_rejects CASCADE"); err != nil {
		return fmt.Errorf("empty the mailings: %w", err)
	}
	return s.Checkpoint(ctx)
}

// upload uploads the CSV as a paused mailing, which is not sent.
func (in *ingesting) upload(ctx context.Context) error {
	_, err := load.Upload{Sheet: in.sheet, Rows: in.rows, Fields: map[string]string{
		"subject": "Olá, {{nome}}", "start": "false",
		"html": `<p title="{{cidade}}">{{nome}}, sua fatura {{fatura}} saiu.</p><p><a href="{{unsubscribe_url}}">Sair</a></p>`,
	}}.Send(ctx, in.api.Addr, in.ours.Key)
	return err
}

func (in *ingesting) close(ctx context.Context) error {
	errs := []error{in.environment.StopPrograms(ctx)}
	for _, s := range []*environment.System{in.ours, in.referenceSystem} {
		if s != nil {
			errs = append(errs, s.Close(ctx))
		}
	}
	return errors.Join(errs...)
}
