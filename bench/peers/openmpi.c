// The peers "openmpi" and "impi": times one collective over a list of sizes and prints, from rank 0,
//   result OP BYTES CALLS MICROSECONDS ok|wrong
// where BYTES is the total as nccl-tests counts it. "waiting" is an allreduce to which all
// ranks but the first come late: the first one's microseconds of processor time a second
// of waiting. "memory" is what a rank takes beside its arrays once it has run allreduces:
// KiB in place of microseconds.
// Usage: mpirun -np N openmpi OP BYTES[,BYTES…]
#include <mpi.h>

#include "measure.h"

static int rank, ranks;

struct arrays {
    float *in, *out;
    size_t total, share; // elements of the whole, and of one rank's part
};

static void run(const char *op, struct arrays *a) {
    int n = (int)a->total, m = (int)a->share;
    if (!strcmp(op, "allreduce") || !strcmp(op, "waiting") || !strcmp(op, "memory"))
        MPI_Allreduce(MPI_IN_PLACE, a->in, n, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    else if (!strcmp(op, "reduce"))
        MPI_Reduce(a->in, a->out, n, MPI_FLOAT, MPI_SUM, 0, MPI_COMM_WORLD);
    else if (!strcmp(op, "broadcast"))
        MPI_Bcast(a->in, n, MPI_FLOAT, 0, MPI_COMM_WORLD);
    else if (!strcmp(op, "allgather"))
        MPI_Allgather(a->in, m, MPI_FLOAT, a->out, m, MPI_FLOAT, MPI_COMM_WORLD);
    else if (!strcmp(op, "reducescatter"))
        MPI_Reduce_scatter_block(a->in, a->out, m, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    else if (!strcmp(op, "alltoall"))
        MPI_Alltoall(a->in, m, MPI_FLOAT, a->out, m, MPI_FLOAT, MPI_COMM_WORLD);
    else if (!strcmp(op, "barrier"))
        MPI_Barrier(MPI_COMM_WORLD);
}

// result is where op leaves what wrong looks at.
static float *result(const char *op, struct arrays *a) {
    int apart = !strcmp(op, "allgather") || !strcmp(op, "alltoall") || !strcmp(op, "reduce") || !strcmp(op, "reducescatter");
    return apart ? a->out : a->in;
}

static int wrong(const char *op, struct arrays *a, int turn, int calls) {
    const float *got = result(op, a);
    size_t n = a->total;
    if (!strcmp(op, "barrier") || (!strcmp(op, "reduce") && rank != 0)) return 0;
    if (!strcmp(op, "reducescatter")) n = a->share;
    for (size_t i = 0; i < n; i += check_stride(n, turn, calls)) {
        float want;
        if (!strcmp(op, "broadcast"))
            want = pattern(0, i, turn);
        else if (!strcmp(op, "allgather"))
            want = pattern((int)(i / a->share), i % a->share, turn);
        else if (!strcmp(op, "alltoall"))
            want = pattern((int)(i / a->share), (size_t)rank * a->share + i % a->share, turn);
        else if (!strcmp(op, "reducescatter"))
            want = pattern_sum(ranks, (size_t)rank * a->share + i, turn);
        else
            want = pattern_sum(ranks, i, turn);
        if (got[i] != want) return 1;
    }
    return 0;
}

static void tell(const char *op, size_t bytes, int calls, double mine, int bad) {
    double most;
    int any;
    MPI_Reduce(&mine, &most, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    MPI_Reduce(&bad, &any, 1, MPI_INT, MPI_MAX, 0, MPI_COMM_WORLD);
    if (rank == 0) {
        printf("result %s %zu %d %.4f %s\n", op, bytes, calls, most, any ? "wrong" : "ok");
        fflush(stdout);
    }
}

// waiting: as fill, barrier and call of measure, with the others late.
static void waiting(struct arrays *a, size_t bytes) {
    double used[WAITS];
    int bad = 0;
    for (int turn = -1; turn < WAITS; turn++) {
        fill(a->in, a->total, 0, rank, turn);
        MPI_Barrier(MPI_COMM_WORLD);
        if (rank > 0 && turn >= 0) late();
        double t = processor_us();
        run("waiting", a);
        if (turn >= 0) used[turn] = (processor_us() - t) * 1e6 / WAIT_US;
        bad |= wrong("waiting", a, turn, WAITS);
    }
    double m = median(used, WAITS);
    tell("waiting", bytes, WAITS, rank == 0 && m > 0.001 ? m : 0.001, bad);
}

static void measure(const char *op, size_t bytes) {
    static double times[MAX_CALLS];
    struct arrays a;
    a.total = bytes / sizeof(float);
    a.share = a.total / (size_t)ranks;
    if (a.share == 0) a.share = 1;
    if (!strcmp(op, "allgather") || !strcmp(op, "alltoall") || !strcmp(op, "reducescatter")) a.total = a.share * (size_t)ranks;
    size_t room = a.total * sizeof(float) + 4096;
    a.in = aligned_alloc(4096, (room + 4095) / 4096 * 4096);
    a.out = aligned_alloc(4096, (room + 4095) / 4096 * 4096);
    memset(a.out, 0, room);
    int calls = calls_for(bytes), bad = 0;
    if (!strcmp(op, "waiting")) {
        waiting(&a, bytes);
        free(a.in);
        free(a.out);
        return;
    }
    for (int turn = -WARM_CALLS(calls); turn < calls; turn++) {
        fill(a.in, !strcmp(op, "allgather") ? a.share : a.total, 0, rank, turn);
        MPI_Barrier(MPI_COMM_WORLD);
        double t = now_us();
        if (!planted("nothing")) run(op, &a);
        t = now_us() - t;
        if (turn >= 0) times[turn] = t;
        spoil(result(op, &a), !strcmp(op, "reducescatter") ? a.share : a.total);
        bad |= wrong(op, &a, turn, calls);
    }
    double mine = strcmp(op, "memory") ? median(times, calls) : own_kib(2 * room);
    tell(op, bytes, calls, mine, bad);
    free(a.in);
    free(a.out);
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (argc != 3) {
        if (rank == 0) fprintf(stderr, "usage: openmpi OP BYTES[,BYTES...]\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    for (char *size = strtok(argv[2], ","); size; size = strtok(NULL, ",")) measure(argv[1], strtoull(size, NULL, 10));
    MPI_Finalize();
    return 0;
}
