package store_test

import (
	"bytes"
	"database/sql"
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"pgregory.net/rapid"

	"email-gateway/shared/store"
	"email-gateway/shared/store/internal/pg"
	"email-gateway/shared/store/storetest"
)

// Postgres reads a column's array as the values that went into it.
func TestColumns(t *testing.T) {
	t.Parallel()
	db := storetest.Connect(t, storetest.New(t), store.Options{})
	type row struct {
		ID, OptionalID, Text, OptionalText sql.NullString
		Bytes, JSON                        []byte
		N, OptionalN                       sql.NullInt64
		Yes                                sql.NullBool
		At                                 sql.NullTime
		Starts                             bool
	}
	text := rapid.StringOf(rapid.OneOf(rapid.SampledFrom([]rune(`"\{},' NULL`+"\n")), rapid.Rune().Filter(func(r rune) bool { return r != 0 })))
	anyCell := rapid.Custom(func(t *rapid.T) cell {
		c := cell{Text: text.Draw(t, "text"), N: rapid.Int64().Draw(t, "n"), Yes: rapid.Bool().Draw(t, "yes"), JSON: []byte(`{}`)}
		if rapid.Bool().Draw(t, "not NULL") {
			c.ID = uuid.UUID(rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "id"))
			c.Bytes = append([]byte{}, rapid.SliceOf(rapid.Byte()).Draw(t, "bytes")...)
			c.At = time.UnixMicro(rapid.Int64Range(-1e15, 1e16).Draw(t, "at")).UTC()
			c.JSON, _ = json.Marshal(c.Text)
		}
		return c
	})
	rapid.Check(t, func(rt *rapid.T) {
		cells := rapid.SliceOfN(anyCell, 0, 20).Draw(rt, "cells")
		rows, err := db.QueryContext(t.Context(), `
			SELECT id, optional_id, text, optional_text, bytes, json, n, optional_n, yes, at, start = coalesce(at, '-infinity')
			FROM unnest($1::uuid[], $2::uuid[], $3::text[], $4::text[], $5::bytea[], $6::jsonb[], $7::bigint[], $8::bigint[], $9::bool[], $10::timestamptz[], $11::timestamptz[])
			AS t(id, optional_id, text, optional_text, bytes, json, n, optional_n, yes, at, start)`, columnsOf(cells)...)
		if err != nil {
			rt.Fatal(err)
		}
		defer rows.Close()
		i := 0
		for ; rows.Next(); i++ {
			var got row
			if err := rows.Scan(&got.ID, &got.OptionalID, &got.Text, &got.OptionalText, &got.Bytes, &got.JSON, &got.N, &got.OptionalN, &got.Yes, &got.At, &got.Starts); err != nil {
				rt.Fatal(err)
			}
			c := cells[i]
			want := row{
				ID: sql.NullString{String: c.ID.String(), Valid: true}, OptionalID: sql.NullString{String: c.ID.String(), Valid: true},
				Text: sql.NullString{String: c.Text, Valid: true}, OptionalText: sql.NullString{String: c.Text, Valid: c.Text != ""},
				Bytes: c.Bytes, JSON: got.JSON, Yes: sql.NullBool{Bool: c.Yes, Valid: true},
				N: sql.NullInt64{Int64: c.N, Valid: true}, OptionalN: sql.NullInt64{Int64: c.N, Valid: c.N != 0},
				At: sql.NullTime{Time: c.At, Valid: !c.At.IsZero()}, Starts: true,
			}
			if c.ID == uuid.Nil {
				want.OptionalID = sql.NullString{}
			}
			got.At.Time = got.At.Time.UTC()
			if diff := cmp.Diff(want, got); diff != "" || (got.Bytes == nil) != (c.Bytes == nil) {
				rt.Fatal(diff)
			}
			var decoded, meant any
			if err := json.Unmarshal(got.JSON, &decoded); err != nil {
				rt.Fatal(err)
			}
			if err := json.Unmarshal(c.JSON, &meant); err != nil || !cmp.Equal(decoded, meant) {
				rt.Fatalf("%s, want %s", got.JSON, bytes.TrimSpace(c.JSON))
			}
		}
		if err := rows.Err(); err != nil || i != len(cells) {
			rt.Fatalf("%d of %d rows, %v", i, len(cells), err)
		}
	})
}

// cell is one value of each kind that a column can hold.
type cell struct {
	ID    uuid.UUID
	Text  string
	Bytes []byte
	JSON  []byte
	N     int64
	Yes   bool
	At    time.Time
}

// columnsOf lays the cells out as uuid, uuid or NULL, text, text or NULL, bytea,
// jsonb, bigint, bigint or NULL, boolean, timestamptz or NULL, and timestamptz or -infinity arrays.
func columnsOf(cells []cell) []any {
	id, text, n := func(c *cell) uuid.UUID { return c.ID }, func(c *cell) string { return c.Text }, func(c *cell) int64 { return c.N }
	at := func(c *cell) time.Time { return c.At }
	return []any{
		pg.UUIDs(cells, id), pg.OptionalUUIDs(cells, id), pg.Texts(cells, text), pg.OptionalTexts(cells, text),
		pg.Byteas(cells, func(c *cell) []byte { return c.Bytes }), pg.JSONBs(cells, func(c *cell) []byte { return c.JSON }),
		pg.BigInts(cells, n), pg.OptionalBigInts(cells, n), pg.Bools(cells, func(c *cell) bool { return c.Yes }), pg.Times(cells, at), pg.StartTimes(cells, at),
	}
}
