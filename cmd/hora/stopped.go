package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"hora/launch"
)

// stopSignal is why a context of untilStopped has ended.
type stopSignal syscall.Signal

func (s stopSignal) Error() string { return "stopped by " + launch.SignalName(syscall.Signal(s)) }

// untilStopped gives a context that SIGINT or SIGTERM ends. Whoever gives up because of
// it returns stopped's error.
func (p *program) untilStopped() (ctx context.Context, release func()) {
	ctx, cancel := context.WithCancelCause(p.ctx)
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	done := make(chan struct{})
	go func() {
		defer close(done)
		select {
		case s := <-signals:
			cancel(stopSignal(s.(syscall.Signal)))
		case <-ctx.Done():
		}
	}()
	return ctx, func() {
		signal.Stop(signals)
		cancel(nil)
		<-done
	}
}

// stopped is the error of a subcommand whose context a signal has ended, nil if none has,
// and sets the exit code that docs/exit-codes.md gives such an end.
func (p *program) stopped(ctx context.Context, then string) error {
	var s stopSignal
	if !errors.As(context.Cause(ctx), &s) {
		return nil
	}
	p.code = launch.ExitSignal + int(s)
	return fmt.Errorf("%w%s", s, then)
}
