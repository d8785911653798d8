package pg

import (
	"encoding/binary"
	"time"

	"github.com/google/uuid"
	"github.com/lib/pq"
	"github.com/lib/pq/oid"

	"email-gateway/shared/store/internal/pgtext"
)

// Grouped statements send one array per column in the protocol's binary form: lib/pq sends a []byte parameter
// unchanged. The arrays of lib/pq are text: each quote in a body is escaped by the client and unescaped by the server,
// and a bytea that should be NULL becomes an empty one.
//
// Each function below encodes one column: at returns the value of a row.

func UUIDs[T any](rows []T, at func(*T) uuid.UUID) []byte {
	return encodeArray(rows, oid.T_uuid, 16*len(rows), func(b []byte, row *T) []byte {
		id := at(row)
		return append(b, id[:]...)
	})
}

// OptionalUUIDs is UUIDs with NULL for uuid.Nil.
func OptionalUUIDs[T any](rows []T, at func(*T) uuid.UUID) []byte {
	return encodeArray(rows, oid.T_uuid, 16*len(rows), func(b []byte, row *T) []byte {
		id := at(row)
		if id == uuid.Nil {
			return nil
		}
		return append(b, id[:]...)
	})
}

func Texts[T any](rows []T, at func(*T) string) []byte {
	return encodeArray(rows, oid.T_text, length(rows, at), func(b []byte, row *T) []byte { return append(b, at(row)...) })
}

// OptionalTexts is Texts with NULL for "".
func OptionalTexts[T any](rows []T, at func(*T) string) []byte {
	return encodeArray(rows, oid.T_text, length(rows, at), func(b []byte, row *T) []byte {
		text := at(row)
		if text == "" {
			return nil
		}
		return append(b, text...)
	})
}

// Byteas encodes nil as NULL.
func Byteas[T any](rows []T, at func(*T) []byte) []byte {
	return encodeArray(rows, oid.T_bytea, length(rows, at), func(b []byte, row *T) []byte {
		value := at(row)
		if value == nil {
			return nil
		}
		return append(b, value...)
	})
}

// JSONBs takes encoded JSON. The binary form of jsonb is a version byte, 1, and the text.
func JSONBs[T any](rows []T, at func(*T) []byte) []byte {
	return encodeArray(rows, oid.T_jsonb, len(rows)+length(rows, at), func(b []byte, row *T) []byte {
		return append(append(b, 1), at(row)...)
	})
}

func BigInts[T any](rows []T, at func(*T) int64) []byte {
	return encodeArray(rows, oid.T_int8, 8*len(rows), func(b []byte, row *T) []byte {
		return binary.BigEndian.AppendUint64(b, uint64(at(row)))
	})
}

// OptionalBigInts is BigInts with NULL for 0.
func OptionalBigInts[T any](rows []T, at func(*T) int64) []byte {
	return encodeArray(rows, oid.T_int8, 8*len(rows), func(b []byte, row *T) []byte {
		n := at(row)
		if n == 0 {
			return nil
		}
		return binary.BigEndian.AppendUint64(b, uint64(n))
	})
}

func Bools[T any](rows []T, at func(*T) bool) []byte {
	return encodeArray(rows, oid.T_bool, len(rows), func(b []byte, row *T) []byte {
		if at(row) {
			return append(b, 1)
		}
		return append(b, 0)
	})
}

// Times encodes the zero time as NULL.
func Times[T any](rows []T, at func(*T) time.Time) []byte {
	return encodeArray(rows, oid.T_timestamptz, 8*len(rows), func(b []byte, row *T) []byte {
		t := at(row)
		if t.IsZero() {
			return nil
		}
		return appendTime(b, t)
	})
}

// StartTimes is Times with -infinity, which is before all times, for the zero time.
func StartTimes[T any](rows []T, at func(*T) time.Time) []byte {
	return encodeArray(rows, oid.T_timestamptz, 8*len(rows), func(b []byte, row *T) []byte {
		t := at(row)
		if t.IsZero() {
			return binary.BigEndian.AppendUint64(b, 1<<63) // the least int64
		}
		return appendTime(b, t)
	})
}

// appendTime appends the binary form of timestamptz: the number of microseconds since 2000.
func appendTime(b []byte, t time.Time) []byte {
	epoch := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)
	return binary.BigEndian.AppendUint64(b, uint64(t.UnixMicro()-epoch.UnixMicro()))
}

// TextArray returns the texts as an array parameter, which is empty and not NULL if there are none. It removes U+0000.
func TextArray(values []string) pq.StringArray {
	clean := make(pq.StringArray, len(values))
	for i, value := range values {
		clean[i] = pgtext.WithoutNUL(value)
	}
	return clean
}

func UUIDArray(ids []uuid.UUID) []byte {
	return UUIDs(ids, func(id *uuid.UUID) uuid.UUID { return *id })
}

// encodeArray encodes an array of one dimension with lower bound 1. size is the number of bytes of all values. value
// appends a row's value to b, or returns nil for NULL.
func encodeArray[T any](rows []T, element oid.Oid, size int, value func(b []byte, row *T) []byte) []byte {
	const dimensions, mayHoldNulls, begin = 1, 1, 1
	header := []uint32{dimensions, mayHoldNulls, uint32(element), uint32(len(rows)), begin}
	b := make([]byte, 0, 4*len(header)+4*len(rows)+size)
	for _, word := range header {
		b = binary.BigEndian.AppendUint32(b, word)
	}
	for i := range rows {
		start := len(b)
		b = append(b, 0, 0, 0, 0)
		if filled := value(b, &rows[i]); filled != nil {
			b = filled
			binary.BigEndian.PutUint32(b[start:], uint32(len(b)-start-4))
		} else {
			binary.BigEndian.PutUint32(b[start:], ^uint32(0)) // a length of -1 is NULL
		}
	}
	return b
}

func length[T any, V string | []byte](rows []T, at func(*T) V) int {
	n := 0
	for i := range rows {
		n += len(at(&rows[i]))
	}
	return n
}
