package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"hora/cmd/console"
	"hora/event"
	"hora/server"
	"hora/server/snapshot"
	"hora/server/store"
)

// copyServer copies a server's folder; what is copied holds tokens too.
func copyServer(from, to string, errs io.Writer) (files int, err error) {
	far := console.NewProgress(errs, "horad: copying files of content")
	defer far.Done()
	if files, err = store.Backup(from, to, far.Count); err != nil {
		return 0, err
	}
	return files, snapshot.StayBehind(to)
}

func backupCommand(out, errs io.Writer) *cobra.Command {
	return &cobra.Command{
		Use: "backup DIR TO", Short: "copy a server's folder, which may be in use, to a new folder", Args: console.Takes,
		RunE: func(_ *cobra.Command, args []string) error {
			n, err := copyServer(args[0], args[1], errs)
			if err == nil {
				fmt.Fprintf(out, "copied %s with %s of content to %s\n", store.DatabaseFile, event.Counted(n, "file"), args[1])
				if _, err := os.Stat(filepath.Join(args[0], store.KeyFile)); err == nil {
					fmt.Fprintf(errs, "horad: %s is not in it, so that a copy alone opens no secret: keep that file elsewhere\n", store.KeyFile)
				}
			}
			return err
		},
	}
}

func restoreCommand(out, errs io.Writer) *cobra.Command {
	return &cobra.Command{
		Use: "restore FROM DIR", Short: "make a server's folder of a backup", Args: console.Takes,
		RunE: func(_ *cobra.Command, args []string) error {
			n, err := copyServer(args[0], args[1], errs)
			var pools []string
			if err == nil {
				pools, err = store.MakesNodes(args[1])
			}
			if err == nil {
				fmt.Fprintf(out, "%s is a server's folder with %s of content: start it with hora up --dir %s\n", args[1], event.Counted(n, "file"), args[1])
				fmt.Fprintf(errs, "horad: where the server had secrets, put its %s, which no backup has, into %s first: without it they cannot be read\n", store.KeyFile, args[1])
				for _, p := range pools {
					fmt.Fprintf(out, "pool %s: machines that were made for it before are ended by this server only if they come to it, since another may have them still: hora pool list names those that may come, and those of the pool's list that do not\n", p)
				}
			}
			return err
		},
	}
}

func checkCommand(out io.Writer) *cobra.Command {
	return &cobra.Command{
		Use: "check DIR", Short: "read all of a server's folder and tell what is damaged", Args: console.Takes,
		RunE: func(_ *cobra.Command, args []string) error {
			r, err := store.Check(args[0], server.FolderParts)
			if err != nil {
				return err
			}
			for _, f := range r.Faults {
				fmt.Fprintln(out, f)
			}
			if len(r.Faults) > 0 {
				return fmt.Errorf("%s: %s: restore a backup with horad restore, into a new folder", args[0], event.Counted(len(r.Faults), "fault"))
			}
			fmt.Fprintf(out, "%s is whole: %s, %s of content\n", args[0], event.Counted(r.Jobs, "job"), event.Counted(r.Blobs, "file"))
			return nil
		},
	}
}
