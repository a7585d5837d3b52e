// Package secret owns a job's secret: its file, and the challenge by which two
// processes prove to each other that they know it before anything else is read
// from the connection between them.
//
// It never sends the secret, never prints it and never reads it from a command
// line or the environment. Client and Server run on the caller's goroutine and
// end by their deadline; a Gate runs one accepting goroutine and one per
// connection that has not proved itself yet, and joins them in Close.
package secret
