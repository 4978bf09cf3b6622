package state

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"time"
)

// errDamaged is wrapped by every error that means that the bytes of the store
// differ from those that were written.
var errDamaged = errors.New("the store is damaged")

// checksum hashes the fields of a row. The length of each field is hashed
// too, so that e.g. "ab","c" and "a","bc" differ.
func checksum(fields ...string) int64 {
	h := sha256.New()
	var n [8]byte
	for _, f := range fields {
		binary.BigEndian.PutUint64(n[:], uint64(len(f)))
		_, _ = h.Write(n[:])
		_, _ = h.Write([]byte(f))
	}
	return int64(binary.BigEndian.Uint64(h.Sum(nil)))
}

func digits(n int64) string { return strconv.FormatInt(n, 10) }

func (o *Object) checksum() int64 {
	status := "-"
	if o.Status != nil {
		status = "+" + string(o.Status)
	}
	return checksum("object", o.Kind, o.Name, o.UID, digits(o.Revision), digits(o.Generation), string(o.Life),
		string(o.Spec), status, digits(o.Created.UnixNano()), digits(o.Updated.UnixNano()))
}

func (in *Intent) checksum() int64 {
	return checksum("intent", in.Token, in.Object.Kind, in.Object.Name, in.UID, in.Action, digits(in.Began.UnixNano()), in.Owner)
}

// meta is the single row of the meta table.
type meta struct {
	storeID string
	// generation grows at every open, close and backup. revision grows with every
	// changed object.
	generation, revision int64
	sum                  int64
	// rebuilt is the reason why records may be missing; empty if none are.
	rebuilt string
}

func (m *meta) checksum() int64 {
	return checksum("meta", m.storeID, digits(m.generation), digits(m.revision), digits(m.sum), m.rebuilt)
}

type scanner interface{ Scan(dest ...any) error }

// scanError returns errDamaged for a value that does not fit its field, because
// the agent never writes such a value.
func scanError(err error) error {
	if err == nil || sqliteCode(err) != 0 || errors.Is(err, sql.ErrNoRows) ||
		errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return fmt.Errorf("%w: %w", errDamaged, err)
}

const metaColumns = "store_id, generation, revision, sum, rebuilt, chk"

func scanMeta(s scanner) (meta, error) {
	var m meta
	var chk int64
	if err := s.Scan(&m.storeID, &m.generation, &m.revision, &m.sum, &m.rebuilt, &chk); err != nil {
		if errors.Is(err, sql.ErrNoRows) {
			return m, fmt.Errorf("%w: its own row is missing", errDamaged)
		}
		return m, scanError(err)
	}
	if chk != m.checksum() {
		return m, fmt.Errorf("%w: its own row fails its checksum", errDamaged)
	}
	return m, nil
}

const objectColumns = "kind, name, uid, revision, generation, life, spec, status, created, updated, chk"

func scanObject(s scanner) (Object, error) {
	var o Object
	var spec, status []byte
	var created, updated, chk int64
	err := s.Scan(&o.Kind, &o.Name, &o.UID, &o.Revision, &o.Generation, &o.Life, &spec, &status, &created, &updated, &chk)
	if err != nil {
		return o, scanError(err)
	}
	o.Spec, o.Status = spec, status
	o.Created, o.Updated = time.Unix(0, created).UTC(), time.Unix(0, updated).UTC()
	if chk != o.checksum() {
		return o, fmt.Errorf("%w: %s/%s fails its checksum", errDamaged, o.Kind, o.Name)
	}
	return o, nil
}

const intentColumns = "token, kind, name, uid, action, began, owner, chk"

func scanIntent(s scanner) (Intent, error) {
	var in Intent
	var began, chk int64
	if err := s.Scan(&in.Token, &in.Object.Kind, &in.Object.Name, &in.UID, &in.Action, &began, &in.Owner, &chk); err != nil {
		return in, scanError(err)
	}
	in.Began = time.Unix(0, began).UTC()
	if chk != in.checksum() {
		return in, fmt.Errorf("%w: the intent %s fails its checksum", errDamaged, in.Token)
	}
	return in, nil
}

const eventColumns = "seq, time, kind, name, uid, level, reason, message, attempt, retry_limit, next_retry"

func scanEvent(s scanner) (Event, error) {
	var e Event
	var at int64
	var next sql.NullInt64
	err := s.Scan(&e.Seq, &at, &e.Object.Kind, &e.Object.Name, &e.UID, &e.Level, &e.Reason, &e.Message, &e.Attempt, &e.Limit, &next)
	e.Time = time.Unix(0, at).UTC()
	if next.Valid {
		t := time.Unix(0, next.Int64).UTC()
		e.NextRetry = &t
	}
	return e, scanError(err)
}

// collect returns all rows of a query, each read by scan(). err is the error of
// the query.
func collect[T any](rows *sql.Rows, err error, scan func(scanner) (T, error)) ([]T, error) {
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	out := []T{}
	for rows.Next() {
		v, err := scan(rows)
		if err != nil {
			return nil, err
		}
		out = append(out, v)
	}
	return out, rows.Err()
}
