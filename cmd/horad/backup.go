package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"hora/server"
	"hora/server/snapshot"
	"hora/server/store"
)

// copyServer copies a server's folder; what is copied holds tokens too.
func copyServer(from, to string) (files int, err error) {
	if files, err = store.Backup(from, to); err != nil {
		return 0, err
	}
	return files, snapshot.StayBehind(to)
}

func backupCommand(out io.Writer) *cobra.Command {
	return &cobra.Command{
		Use: "backup DIR TO", Short: "copy a server's folder, which may be in use, to a new folder", Args: cobra.ExactArgs(2),
		RunE: func(_ *cobra.Command, args []string) error {
			n, err := copyServer(args[0], args[1])
			if err == nil {
				fmt.Fprintf(out, "copied %s with %d files of content to %s\n", store.DatabaseFile, n, args[1])
			}
			return err
		},
	}
}

func restoreCommand(out io.Writer) *cobra.Command {
	return &cobra.Command{
		Use: "restore FROM DIR", Short: "make a server's folder of a backup", Args: cobra.ExactArgs(2),
		RunE: func(_ *cobra.Command, args []string) error {
			n, err := copyServer(args[0], args[1])
			if err == nil {
				fmt.Fprintf(out, "%s is a server's folder with %d files of content: start it with hora up --dir %s\n", args[1], n, args[1])
			}
			return err
		},
	}
}

func checkCommand(out io.Writer) *cobra.Command {
	return &cobra.Command{
		Use: "check DIR", Short: "read all of a server's folder and tell what is damaged", Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			r, err := store.Check(args[0], server.FolderParts)
			if err != nil {
				return err
			}
			for _, f := range r.Faults {
				fmt.Fprintln(out, f)
			}
			if len(r.Faults) > 0 {
				return fmt.Errorf("%s: %d faults: restore a backup with horad restore, into a new folder", args[0], len(r.Faults))
			}
			fmt.Fprintf(out, "%s is whole: %d jobs, %d files of content\n", args[0], r.Jobs, r.Blobs)
			return nil
		},
	}
}
