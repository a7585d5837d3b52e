// The peer "gloo": the same measurement as openmpi.c over gloo's TCP transport on the
// loopback interface, one process a rank, meeting through a folder.
// Usage: gloo RANK RANKS FOLDER ALGORITHM OP BYTES[,BYTES…]
// ALGORITHM is ring, bcube or halving for allreduce, "default" for the other operations.
// With "spin-" before it (spin-chunked is one more) the ranks poll their sockets themselves:
// gloo's synchronous mode, which its older classes alone have. Those have no alltoall and
// no reduce. "waiting" and "memory" are openmpi.c's.
// Each rank prints: result OP BYTES CALLS MICROSECONDS ok|wrong
#include <gloo/allgather.h>
#include <gloo/allgather_ring.h>
#include <gloo/allreduce.h>
#include <gloo/allreduce_bcube.h>
#include <gloo/allreduce_halving_doubling.h>
#include <gloo/allreduce_ring.h>
#include <gloo/allreduce_ring_chunked.h>
#include <gloo/alltoall.h>
#include <gloo/barrier.h>
#include <gloo/barrier_all_to_all.h>
#include <gloo/broadcast.h>
#include <gloo/broadcast_one_to_all.h>
#include <gloo/math.h>
#include <gloo/reduce.h>
#include <gloo/reduce_scatter.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/rendezvous/prefix_store.h>
#include <gloo/transport/tcp/device.h>

#include <unistd.h>

#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "measure.h"

namespace {

struct Arrays {
    std::vector<float> in, out;
    size_t total, share;
};

void add(void *c, const void *a, const void *b, size_t n) { gloo::sum<float>(c, a, b, n); }

// Operation runs one collective over arrays that stay where they are.
struct Operation {
    virtual ~Operation() = default;
    virtual void run() = 0;
};

bool spins(const std::string &algorithm) { return algorithm.compare(0, 5, "spin-") == 0; }

struct Call : Operation {
    std::shared_ptr<gloo::Context> context;
    std::string op, algorithm;
    Arrays &a;
    std::unique_ptr<gloo::Algorithm> made;  // by one of the older classes, where there is one
    std::unique_ptr<gloo::ReduceScatterHalvingDoubling<float>> scatter;

    Call(std::shared_ptr<gloo::Context> c, std::string o, std::string alg, Arrays &arrays)
        : context(std::move(c)), op(std::move(o)), algorithm(std::move(alg)), a(arrays) {
        std::vector<float *> pointers{a.in.data()};
        int n = (int)a.total;
        if (algorithm == "halving" || algorithm == "spin-halving")
            made = std::make_unique<gloo::AllreduceHalvingDoubling<float>>(context, pointers, n);
        else if (algorithm == "spin-ring")
            made = std::make_unique<gloo::AllreduceRing<float>>(context, pointers, n);
        else if (algorithm == "spin-chunked")
            made = std::make_unique<gloo::AllreduceRingChunked<float>>(context, pointers, n);
        else if (algorithm == "spin-bcube")
            made = std::make_unique<gloo::AllreduceBcube<float>>(context, pointers, n);
        else if (spins(algorithm) && op == "broadcast")
            made = std::make_unique<gloo::BroadcastOneToAll<float>>(context, pointers, a.total, 0);
        else if (spins(algorithm) && op == "allgather")
            made = std::make_unique<gloo::AllgatherRing<float>>(context, std::vector<const float *>{a.in.data()}, a.out.data(), (int)a.share);
        else if (spins(algorithm) && op == "barrier")
            made = std::make_unique<gloo::BarrierAllToAll>(context);
        else if (spins(algorithm) && op != "reducescatter")
            throw std::runtime_error("gloo's synchronous mode has no " + op);
        if (op == "reducescatter") {
            std::vector<int> counts((size_t)context->size, (int)a.share);
            scatter = std::make_unique<gloo::ReduceScatterHalvingDoubling<float>>(context, pointers, (int)a.total, counts);
        }
    }

    void run() override {
        if (made) return made->run();
        if (scatter) return scatter->run();
        if (op == "allreduce" || op == "waiting" || op == "memory") {
            gloo::AllreduceOptions o(context);
            o.setAlgorithm(algorithm == "bcube" ? gloo::detail::AllreduceOptionsImpl::BCUBE : gloo::AllreduceOptions::Algorithm::RING);
            o.setInput(a.in.data(), a.total);
            o.setOutput(a.in.data(), a.total);
            o.setReduceFunction(add);
            gloo::allreduce(o);
        } else if (op == "reduce") {
            gloo::ReduceOptions o(context);
            o.setInput(a.in.data(), a.total);
            o.setOutput(a.out.data(), a.total);
            o.setReduceFunction(add);
            o.setRoot(0);
            gloo::reduce(o);
        } else if (op == "broadcast") {
            gloo::BroadcastOptions o(context);
            o.setOutput(a.in.data(), a.total);
            o.setRoot(0);
            gloo::broadcast(o);
        } else if (op == "allgather") {
            gloo::AllgatherOptions o(context);
            o.setInput(a.in.data(), a.share);
            o.setOutput(a.out.data(), a.total);
            gloo::allgather(o);
        } else if (op == "alltoall") {
            gloo::AlltoallOptions o(context);
            o.setInput(a.in.data(), a.total);
            o.setOutput(a.out.data(), a.total);
            gloo::alltoall(o);
        } else {
            gloo::BarrierOptions o(context);
            gloo::barrier(o);
        }
    }
};

bool inPlace(const std::string &op) { return op != "allgather" && op != "alltoall" && op != "reduce"; }

bool wrong(const std::string &op, const Arrays &a, int rank, int ranks, int turn, int calls) {
    if (op == "barrier" || (op == "reduce" && rank != 0)) return false;
    const float *got = inPlace(op) ? a.in.data() : a.out.data();
    size_t n = op == "reducescatter" ? a.share : a.total;
    for (size_t i = 0; i < n; i += check_stride(n, turn, calls)) {
        float want;
        if (op == "broadcast")
            want = pattern(0, i, turn);
        else if (op == "allgather")
            want = pattern((int)(i / a.share), i % a.share, turn);
        else if (op == "alltoall")
            want = pattern((int)(i / a.share), (size_t)rank * a.share + i % a.share, turn);
        else if (op == "reducescatter")
            want = pattern_sum(ranks, (size_t)rank * a.share + i, turn);
        else
            want = pattern_sum(ranks, i, turn);
        if (got[i] != want) return true;
    }
    return false;
}

// Together brings the ranks together, in the way that their pairs work.
struct Together {
    std::shared_ptr<gloo::Context> context;
    std::unique_ptr<gloo::BarrierAllToAll> spinning;

    Together(std::shared_ptr<gloo::Context> c, bool spin) : context(std::move(c)) {
        if (spin) spinning = std::make_unique<gloo::BarrierAllToAll>(context);
    }

    void run() {
        if (spinning) return spinning->run();
        gloo::BarrierOptions together(context);
        gloo::barrier(together);
    }
};

// Kept to the end: a pair that spins waits for ever for a buffer that is gone, should a
// message for it be on its way still.
std::vector<std::unique_ptr<Arrays>> arrays;
std::vector<std::unique_ptr<Call>> made;

double waiting(Call &call, Together &together, Arrays &a, int rank, int ranks, bool &bad) {
    double used[WAITS];
    for (int turn = -1; turn < WAITS; turn++) {
        fill(a.in.data(), a.total, 0, rank, turn);
        together.run();
        if (rank > 0 && turn >= 0) late();
        double t = processor_us();
        call.run();
        if (turn >= 0) used[turn] = (processor_us() - t) * 1e6 / WAIT_US;
        bad |= wrong("waiting", a, rank, ranks, turn, WAITS);
    }
    double m = median(used, WAITS);
    return rank == 0 && m > 0.001 ? m : 0.001;
}

void measure(std::shared_ptr<gloo::Context> context, Together &together, const std::string &algorithm, const std::string &op, size_t bytes) {
    size_t ranks = (size_t)context->size;
    if (!spins(algorithm)) {
        made.clear();
        arrays.clear();
    }
    arrays.push_back(std::make_unique<Arrays>());
    Arrays &a = *arrays.back();
    a.total = bytes / sizeof(float);
    a.share = std::max<size_t>(a.total / ranks, 1);
    if (op == "allgather" || op == "alltoall" || op == "reducescatter") a.total = a.share * ranks;
    a.in.resize(a.total);
    a.out.resize(a.total);
    made.push_back(std::make_unique<Call>(context, op, algorithm, a));
    Call &call = *made.back();
    int calls = op == "waiting" ? WAITS : calls_for(bytes);
    bool bad = false;
    std::vector<double> times;
    for (int turn = -WARM_CALLS(calls); turn < calls && op != "waiting"; turn++) {
        fill(a.in.data(), op == "allgather" ? a.share : a.total, 0, context->rank, turn);
        together.run();
        double t = now_us();
        if (!planted("nothing")) call.run();
        t = now_us() - t;
        if (turn >= 0) times.push_back(t);
        spoil(inPlace(op) ? a.in.data() : a.out.data(), op == "reducescatter" ? a.share : a.total);
        bad |= wrong(op, a, context->rank, context->size, turn, calls);
    }
    double figure = op == "waiting"  ? waiting(call, together, a, context->rank, context->size, bad)
                    : op == "memory" ? own_kib(2 * a.total * sizeof(float))
                                     : median(times.data(), (int)times.size());
    printf("result %s %zu %d %.4f %s\n", op.c_str(), bytes, calls, figure, bad ? "wrong" : "ok");
    fflush(stdout);
}

}  // namespace

int main(int argc, char **argv) {
    if (argc != 7) {
        fprintf(stderr, "usage: gloo RANK RANKS FOLDER ALGORITHM OP BYTES[,BYTES...]\n");
        return 2;
    }
    int rank = atoi(argv[1]), ranks = atoi(argv[2]);
    gloo::transport::tcp::attr attr("127.0.0.1");
    auto device = gloo::transport::tcp::CreateDevice(attr);
    auto store = std::make_shared<gloo::rendezvous::FileStore>(argv[3]);
    auto context = std::make_shared<gloo::rendezvous::Context>(rank, ranks);
    context->connectFullMesh(*store, device);
    bool spin = spins(argv[4]);
    for (int i = 0; spin && i < ranks; i++)
        if (i != rank) context->getPair(i)->setSync(true, true);
    Together together(context, spin);
    for (char *size = strtok(argv[6], ","); size; size = strtok(nullptr, ","))
        measure(context, together, argv[4], argv[5], strtoull(size, nullptr, 10));
    if (spin) _exit(0);  // a pair that spins is closed by nobody's loop
    return 0;
}
