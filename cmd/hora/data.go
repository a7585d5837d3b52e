package main

import (
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"

	"hora/dataset"
)

func (p *program) dataCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "data", Short: "look at the tables that a training reads, check them, and make Parquet of others"}
	cmd.AddCommand(p.dataLook(), p.dataVerify(), p.dataConvert())
	return cmd
}

func (p *program) dataLook() *cobra.Command {
	var asJSON bool
	var memory int
	cmd := &cobra.Command{
		Use:   "look PATH…",
		Short: "columns, row groups, checksums, and how well hora.dataset mixes them",
		Long: "look reads the footers of Parquet files (paths, folders, patterns, addresses) and decodes one row group. It says which\n" +
			"columns hora.dataset can read, what the row groups allow in mixing, and whether damage could be found.",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return fmt.Errorf("data look needs a path: name a file or a folder, as in hora data look data/train")
			}
			return nil
		},
		RunE: func(_ *cobra.Command, args []string) error {
			ctx, release := p.untilStopped()
			defer release()
			look, err := dataset.Inspect(ctx, args, int64(memory)<<20, p.getenv)
			if err != nil {
				return err
			}
			if asJSON {
				e := json.NewEncoder(p.out)
				e.SetIndent("", "  ")
				return e.Encode(look)
			}
			return look.Write(p.out)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "the same as JSON, for machines")
	cmd.Flags().IntVar(&memory, "memory", 512, "MiB that the job may hold for mixing, as memory= of hora.dataset.open")
	return cmd
}

func (p *program) dataVerify() *cobra.Command {
	var asJSON bool
	var threads int
	cmd := &cobra.Command{
		Use:   "verify PATH…",
		Short: "decode everything, compare checksums, and list what is damaged",
		Long: "verify reads every column of every row group (paths, folders, patterns, addresses) and names each that is damaged, by file, row\n" +
			"group, column and byte. It ends with 1 when there is any. What it lists is what hora.dataset leaves out with on_error=\"skip\".",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return fmt.Errorf("data verify needs a path: name a file or a folder, as in hora data verify data/train")
			}
			return nil
		},
		RunE: func(_ *cobra.Command, args []string) error {
			ctx, release := p.untilStopped()
			defer release()
			found, err := dataset.Verify(ctx, args, threads, p.getenv)
			if err != nil {
				return err
			}
			if asJSON {
				e := json.NewEncoder(p.out)
				e.SetIndent("", "  ")
				err = e.Encode(found)
			} else {
				err = found.Write(p.out)
			}
			if n := len(found.Damaged); n > 0 && err == nil {
				err = fmt.Errorf("data verify: %d parts of the data are damaged; write those files again, or read with on_error=\"skip\"", n)
			}
			return err
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "the same as JSON, for machines")
	cmd.Flags().IntVar(&threads, "threads", 2, "threads that decode")
	return cmd
}

func (p *program) dataConvert() *cobra.Command {
	var asJSON bool
	var c dataset.Conversion
	var group int
	cmd := &cobra.Command{
		Use:   "convert SOURCE… FOLDER",
		Short: "write any data that hora.dataset reads as Parquet that mixes well",
		Long: "convert reads Parquet, Delta tables, WebDataset's tar files, TFRecord, CSV, MosaicML's shards and folders of images, and writes their rows in\n" +
			"their order to a folder (or a file that ends in .parquet) that must not be there yet: with row groups of about a MiB, page checksums and offset\n" +
			"indexes. The folder gets its name when all of it is written; in object storage _SUCCESS comes last.",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) < 2 {
				return fmt.Errorf("data convert needs a source and a folder: name both, as in hora data convert data/train.tar data/train")
			}
			return nil
		},
		RunE: func(_ *cobra.Command, args []string) error {
			ctx, release := p.untilStopped()
			defer release()
			c.Source, c.To, c.Group, c.Lookup = args[:len(args)-1], args[len(args)-1], int64(group)<<10, p.getenv
			found, err := dataset.Convert(ctx, c)
			if err != nil {
				return err
			}
			if asJSON {
				e := json.NewEncoder(p.out)
				e.SetIndent("", "  ")
				return e.Encode(found)
			}
			return found.Write(p.out)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "the same as JSON, for machines")
	cmd.Flags().StringSliceVar(&c.Columns, "columns", nil, "the columns that are written; without it each that can be read")
	cmd.Flags().StringSliceVar(
		&c.Ragged, "ragged", nil, "columns of lists that have different lengths even where they look equally long",
	)
	cmd.Flags().StringVar(&c.Compression, "compression", "snappy", "of the pages: snappy, zstd or none")
	cmd.Flags().IntVar(&group, "group", 1024, "KiB that a row group has in memory")
	cmd.Flags().IntVar(&c.Threads, "threads", 2, "threads that decode")
	return cmd
}
