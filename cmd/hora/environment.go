package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"hora/server/client"
	"hora/server/environment"
	"hora/server/node"
)

// makeEnvironment makes an environment that standard input tells of, in the folder that its one argument names, before
// the job is there that needs it.
func makeEnvironment(args []string) int {
	if len(args) != 1 {
		fmt.Fprintln(os.Stderr, "hora: "+node.EnvironmentCommand+" is what a server calls: use hora submit --pip or --env")
		return 2
	}
	var e client.Environment
	if err := json.NewDecoder(os.Stdin).Decode(&e); err != nil {
		fmt.Fprintln(os.Stderr, "hora:", err)
		return 2
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	place := environment.Place{
		Dir: args[0], Environ: os.Environ(), Say: func(text string, _ bool) { fmt.Fprintln(os.Stderr, text) },
	}
	made, err := place.Make(ctx, &e)
	if err != nil {
		fmt.Fprintln(os.Stderr, "hora:", err)
		return 1
	}
	fmt.Fprintln(os.Stderr, made)
	if err := made.Close(); err != nil {
		return 1
	}
	return 0
}
