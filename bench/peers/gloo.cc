// The peer "gloo": the same measurement as openmpi.c over gloo's TCP transport on the
// loopback interface, one process a rank, meeting through a folder.
// Usage: gloo RANK RANKS FOLDER ALGORITHM OP BYTES[,BYTES…]
// ALGORITHM is ring, bcube or halving for allreduce, "default" for the other operations.
// Each rank prints: result OP BYTES CALLS MICROSECONDS ok|wrong
#include <gloo/allgather.h>
#include <gloo/allreduce.h>
#include <gloo/allreduce_halving_doubling.h>
#include <gloo/alltoall.h>
#include <gloo/barrier.h>
#include <gloo/broadcast.h>
#include <gloo/math.h>
#include <gloo/reduce.h>
#include <gloo/reduce_scatter.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/rendezvous/prefix_store.h>
#include <gloo/transport/tcp/device.h>

#include <memory>
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

struct Call : Operation {
    std::shared_ptr<gloo::Context> context;
    std::string op, algorithm;
    Arrays &a;
    std::unique_ptr<gloo::AllreduceHalvingDoubling<float>> halving;
    std::unique_ptr<gloo::ReduceScatterHalvingDoubling<float>> scatter;

    Call(std::shared_ptr<gloo::Context> c, std::string o, std::string alg, Arrays &arrays)
        : context(std::move(c)), op(std::move(o)), algorithm(std::move(alg)), a(arrays) {
        std::vector<float *> pointers{a.in.data()};
        if (algorithm == "halving")
            halving = std::make_unique<gloo::AllreduceHalvingDoubling<float>>(context, pointers, (int)a.total);
        if (op == "reducescatter") {
            std::vector<int> counts((size_t)context->size, (int)a.share);
            scatter = std::make_unique<gloo::ReduceScatterHalvingDoubling<float>>(context, pointers, (int)a.total, counts);
        }
    }

    void run() override {
        if (halving) return halving->run();
        if (scatter) return scatter->run();
        if (op == "allreduce") {
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

bool wrong(const std::string &op, const Arrays &a, int rank, int ranks, int turn, int calls) {
    if (op == "barrier" || (op == "reduce" && rank != 0)) return false;
    bool inPlace = op == "allreduce" || op == "broadcast" || op == "reducescatter";
    const float *got = inPlace ? a.in.data() : a.out.data();
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

void measure(std::shared_ptr<gloo::Context> context, const std::string &algorithm, const std::string &op, size_t bytes) {
    size_t ranks = (size_t)context->size;
    Arrays a;
    a.total = bytes / sizeof(float);
    a.share = std::max<size_t>(a.total / ranks, 1);
    if (op == "allgather" || op == "alltoall" || op == "reducescatter") a.total = a.share * ranks;
    a.in.resize(a.total);
    a.out.resize(a.total);
    Call call(context, op, algorithm, a);
    int calls = calls_for(bytes);
    bool bad = false;
    std::vector<double> times;
    for (int turn = -WARM_CALLS(calls); turn < calls; turn++) {
        fill(a.in.data(), op == "allgather" ? a.share : a.total, 0, context->rank, turn);
        gloo::BarrierOptions together(context);
        gloo::barrier(together);
        double t = now_us();
        call.run();
        t = now_us() - t;
        if (turn >= 0) times.push_back(t);
        bad |= wrong(op, a, context->rank, context->size, turn, calls);
    }
    printf("result %s %zu %d %.4f %s\n", op.c_str(), bytes, calls, median(times.data(), (int)times.size()), bad ? "wrong" : "ok");
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
    for (char *size = strtok(argv[6], ","); size; size = strtok(nullptr, ","))
        measure(context, argv[4], argv[5], strtoull(size, nullptr, 10));
    return 0;
}
