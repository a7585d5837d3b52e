// Package hora is the worker's side of a training job: it makes a process one rank of a
// world and gives it collective operations with the others.
//
//	cfg, err := hora.FromEnv(os.Getenv) // or a Config of your own
//	w, err := hora.Join(ctx, cfg)
//	defer w.Leave(ctx)
//	err = hora.Allreduce(ctx, w.Group(), gradients, hora.Average)
//
// Who trains needs these: [FromEnv], [Join], [World.Group], [World.Rank], [World.Size]; [Allreduce], [Broadcast],
// [Allgather], [AllreduceAsync] and the other operations with a slice; [BufferOf] for memory that is shared;
// [World.Leave] at the end. [RunElastic] with [State] goes on after a loss. [Group.Submit] and [Group.Run] take a
// [Request], for what the functions do not ask for: several tensors in one call, and a bound on the wait.
//
// Leave says goodbye: the others do not count this rank as lost, and where ranks have made different numbers of calls
// it returns a *MismatchError. Close goes without a word, as after an error; the others see a lost rank. After one of
// them the other does nothing, so `defer w.Close()` with `return w.Leave(ctx)` at the end is right for both.
//
// Started by `hora run`, by torchrun, mpirun or srun, or by hand, FromEnv finds the
// place in the world; without any of them it is a world of one. Ranks on one host share
// memory, others talk over TCP; every connection proves the job's secret first.
//
// Errors name ranks, hosts and tensors. A *PeerLostError ends the group: leave, and join
// the next epoch. A *MismatchError is the same on every rank and harms only its own
// operation.
//
// Goroutines: those of the groups (package engine), of the links (package transport) and
// of the rendezvous client; Leave and Close join them all.
package hora
