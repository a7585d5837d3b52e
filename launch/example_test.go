package launch_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"strings"
	"syscall"

	"hora/event"
	"hora/job"
	"hora/launch"
)

// A program of yours starts a job by the program hora, and hears what happens to it.
func Example() {
	hora, err := os.Executable() // yours says where hora is; this test's program can stand in for it
	if err != nil {
		log.Fatal(err)
	}
	spec, err := job.Parse("job.yaml", []byte("np: 2\ncommand: sh -c 'test $RANK = 0 || exit 3'\n"))
	if err != nil {
		log.Fatal(err)
	}
	place := launch.Program(hora, os.Environ())
	place.LocalName = "here"
	place.Events = &event.Sink{}
	defer place.Events.Add(starts{})()
	j, err := launch.Start(context.Background(), *spec, place)
	if err != nil {
		log.Fatal(err) // the job contradicts itself
	}
	outcome, err := j.Wait()
	if err != nil {
		log.Fatal(err) // it could not begin
	}
	fmt.Println(outcome.String())
	fmt.Println("exit code", outcome.ExitCode(), "as the report says:", j.Report().ExitCode)
	// Output:
	// a process started
	// a process started
	// rank 1 on here: exit code 3
	// exit code 3 as the report says: 3
}

type starts struct{}

func (starts) Operation(*event.Operation) {}

func (starts) Event(e event.Event) {
	if _, is := e.(*event.Started); is {
		fmt.Println("a process started")
	}
}

// A job is told to stop by a signal, as from a terminal.
func ExampleJob_Signal() {
	hora, _ := os.Executable()
	place := launch.Program(hora, os.Environ())
	up := make(firstWord, 1)
	place.Stdout = up
	j, err := launch.Start(context.Background(), job.Spec{Command: []string{"sh", "-c", "echo up; sleep 100"}}, place)
	if err != nil {
		log.Fatal(err)
	}
	<-up
	j.Signal(syscall.SIGTERM)
	outcome, err := j.Wait()
	fmt.Println(outcome.ExitCode(), err)
	// Output: 143 <nil>
}

// firstWord is a writer that tells of the first word.
type firstWord chan bool

func (f firstWord) Write(b []byte) (int, error) {
	if strings.Contains(string(b), "up") {
		select {
		case f <- true:
		default:
		}
	}
	return len(b), nil
}
