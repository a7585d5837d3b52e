package demo

import (
	"context"
	"log/slog"
	"regexp"
	"strings"
)

// noteTo is a log that makes a sentence of each warning of the library: the front end
// shows it once, however many ranks have it.
func noteTo(tell func(note string)) *slog.Logger { return slog.New(noteHandler(tell)) }

type noteHandler func(note string)

func (h noteHandler) Enabled(_ context.Context, level slog.Level) bool {
	return level >= slog.LevelWarn
}

func (h noteHandler) WithAttrs([]slog.Attr) slog.Handler { return h }
func (h noteHandler) WithGroup(string) slog.Handler      { return h }

// saidBy is how a rank passes on another one's cause.
var saidBy = regexp.MustCompile(`rank \d+ says: `)

// Handle turns a record into "HOST: message: cause". A cause loses what differs between
// ranks, and what could be done instead, which is done.
func (h noteHandler) Handle(_ context.Context, r slog.Record) error {
	var host, cause string
	r.Attrs(func(a slog.Attr) bool {
		switch a.Key {
		case "host":
			host = a.Value.String() + ": "
		case "cause":
			cause, _, _ = strings.Cut(": "+a.Value.String(), "; ")
		}
		return true
	})
	h(host + r.Message + saidBy.ReplaceAllString(cause, ""))
	return nil
}
